#include "format/dequant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/half.h"

namespace quire {
namespace {

constexpr GgmlType kTypes[] = {GgmlType::f32,   GgmlType::f16,     GgmlType::bf16,  GgmlType::q8_0,   GgmlType::q4_0,    GgmlType::q4_1,
                               GgmlType::q5_0,  GgmlType::q5_1,    GgmlType::q2_k,  GgmlType::q3_k,   GgmlType::q4_k,    GgmlType::q5_k,
                               GgmlType::q6_k,  GgmlType::q8_k,    GgmlType::iq1_s, GgmlType::iq1_m,  GgmlType::iq2_xxs, GgmlType::iq2_xs,
                               GgmlType::iq2_s, GgmlType::iq3_xxs, GgmlType::iq3_s, GgmlType::iq4_nl, GgmlType::iq4_xs,  GgmlType::tq1_0,
                               GgmlType::tq2_0, GgmlType::mxfp4,   GgmlType::nvfp4};

// A record of tools/record/dequant.py: random blocks and the reference's output.
struct Record {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t bytes_per_row = 0;
  std::vector<std::byte> bytes;
  std::vector<float> floats;

  [[nodiscard]] std::span<const std::byte> row(std::uint32_t r) const {
    return std::span(bytes).subspan(std::size_t{r} * bytes_per_row, bytes_per_row);
  }
};

Record load(GgmlType type) {
  const std::string path = "tests/golden/dequant/" + std::string(ggml_type_name(type)) + ".bin";
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path << " is missing; run the tests from the root of the repository";
  Record record;
  stream.read(reinterpret_cast<char*>(&record.rows), 4).read(reinterpret_cast<char*>(&record.columns), 4);
  stream.read(reinterpret_cast<char*>(&record.bytes_per_row), 4);
  record.bytes.resize(std::size_t{record.rows} * record.bytes_per_row);
  record.floats.resize(std::size_t{record.rows} * record.columns);
  stream.read(reinterpret_cast<char*>(record.bytes.data()), static_cast<std::streamsize>(record.bytes.size()));
  stream.read(reinterpret_cast<char*>(record.floats.data()), static_cast<std::streamsize>(record.floats.size() * 4));
  EXPECT_TRUE(stream) << path;
  return record;
}

// Computes w = (code - zero) * scale + minimum, as the kernels read it.
template <class Row>
std::vector<float> floats_of(const Row& row, int zero, std::size_t group) {
  std::vector<float> floats(row.codes.size());
  for (std::size_t i = 0; i < floats.size(); ++i)
    floats[i] = static_cast<float>(row.codes[i] - zero) * row.scales[i / group] + row.minimums[i / group];
  return floats;
}

class Dequant : public ::testing::TestWithParam<GgmlType> {};

TEST_P(Dequant, EqualsTheReferenceBitForBit) {
  const Record record = load(GetParam());
  ASSERT_EQ(record.bytes_per_row, row_bytes(GetParam(), record.columns).value());
  std::vector<float> floats(record.columns);
  for (std::uint32_t r = 0; r < record.rows; ++r) {
    dequantise_row(GetParam(), record.row(r), floats);
    for (std::uint32_t c = 0; c < record.columns; ++c)
      ASSERT_EQ(floats[c], record.floats[std::size_t{r} * record.columns + c]) << "row " << r << " column " << c;
  }
}

TEST_P(Dequant, TheKernelFormatGivesTheSameValues) {
  const Record record = load(GetParam());
  const UnpackedFormat format = unpacked_format(GetParam()).value();
  std::vector<std::uint8_t> codes(record.columns);
  std::vector<float> expected(record.columns);
  for (std::uint32_t r = 0; r < record.rows; ++r) {
    dequantise_row(GetParam(), record.row(r), expected);
    if (format == UnpackedFormat::q4 || format == UnpackedFormat::q4_table) {
      std::vector<float> scales(record.columns / 32), minimums(scales.size());
      const Q4Row row{codes, scales, minimums};
      unpack_q4_row(GetParam(), record.row(r), row);
      EXPECT_LE(*std::ranges::max_element(codes), 15);
      const bool by_table = format == UnpackedFormat::q4_table;
      for (std::uint8_t& code : codes) code = by_table ? code_table(GetParam())[code] : code;
      EXPECT_EQ(floats_of(row, by_table ? 128 : 0, 32), expected);
    } else if (format == UnpackedFormat::q8) {
      std::vector<float> scales(record.columns / 16), minimums(scales.size());
      const Q8Row row{codes, scales, minimums};
      unpack_q8_row(GetParam(), record.row(r), row);
      EXPECT_EQ(floats_of(row, 128, 16), expected);
    } else if (format == UnpackedFormat::bf16) {
      std::vector<std::uint16_t> bits(record.columns);
      unpack_bf16_row(GetParam(), record.row(r), bits);
      for (std::size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(bf16_to_float(bits[i]), expected[i]);
    }
  }
}

// In types with units each scale and minimum is a byte multiple of its unit.
TEST_P(Dequant, ScalesAreMultiplesOfTheirUnits) {
  if (!has_units(GetParam())) return;
  const Record record = load(GetParam());
  const bool q8 = unpacked_format(GetParam()).value() == UnpackedFormat::q8;
  std::vector<std::uint8_t> codes(record.columns);
  std::vector<float> scales(record.columns / (q8 ? 16 : 32)), minimums(scales.size()), units(record.columns / 256 * 2);
  for (std::uint32_t r = 0; r < record.rows; ++r) {
    q8 ? unpack_q8_row(GetParam(), record.row(r), {codes, scales, minimums})
       : unpack_q4_row(GetParam(), record.row(r), {codes, scales, minimums});
    unpack_units(GetParam(), record.row(r), units);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const float* unit = &units[i * (q8 ? 16 : 32) / 256 * 2];
      for (const auto& [value, size] : {std::pair(scales[i], unit[0]), {minimums[i], unit[1]}}) {
        const float times = size == 0.0F ? 0.0F : std::nearbyint(value / size);
        EXPECT_EQ(times * size, value) << "row " << r << " scale " << i;
        EXPECT_TRUE(times >= -128.0F && times <= 127.0F) << times;
      }
    }
  }
}

TEST_P(Dequant, ReadsRowsAtAnyAlignment) {
  const Record record = load(GetParam());
  std::vector<float> expected(record.columns), floats(record.columns);
  dequantise_row(GetParam(), record.row(0), expected);
  std::vector<std::byte> shifted(record.bytes_per_row + 1);
  std::memcpy(shifted.data() + 1, record.row(0).data(), record.bytes_per_row);
  dequantise_row(GetParam(), std::span(shifted).subspan(1), floats);
  EXPECT_EQ(floats, expected);
}

INSTANTIATE_TEST_SUITE_P(Types, Dequant, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(ggml_type_name(type.param)); });

TEST(UnpackedFormat, ReportsTypesWithoutAnUnpacker) {
  std::size_t supported = 0;
  for (std::uint32_t number = 0; number < 100; ++number) {
    const GgmlTypeInfo* info = find_ggml_type(number);
    if (!info) continue;
    const auto format = unpacked_format(info->type);
    supported += format.has_value() ? 1 : 0;
    if (format) continue;
    EXPECT_EQ(format.error().code, ErrorCode::unsupported);
    EXPECT_NE(format.error().message.find(info->name), std::string::npos);
    EXPECT_TRUE(format.error().remedy.ends_with(supported_weight_types())) << format.error().remedy;
  }
  EXPECT_EQ(supported, std::size(kTypes));
}

TEST(UnpackedFormat, DocsListTheSupportedTypes) {
  std::string expected;
  for (const GgmlType type : kTypes) expected += (expected.empty() ? "" : ", ") + std::string(ggml_type_name(type));
  EXPECT_EQ(supported_weight_types(), expected);
  std::ifstream stream("docs/models.md");
  std::string page, word;
  while (stream >> word) page += word + " ";
  EXPECT_NE(page.find("GGUF weight types: " + expected + "."), std::string::npos);
}

TEST(Bf16, F16ValuesAreRoundedToBf16) {
  const std::uint16_t halves[] = {0x3C00, 0x3C01, 0xC000};  // 1, 1 + 2^-10, -2
  std::uint16_t bits[3];
  unpack_bf16_row(GgmlType::f16, std::as_bytes(std::span(halves)), bits);
  EXPECT_EQ(bits[0], 0x3F80);
  EXPECT_EQ(bits[1], 0x3F80);
  EXPECT_EQ(bits[2], 0xC000);
}

TEST(DequantDeath, AWrongSizeAbortsTheProgram) {
  std::vector<std::byte> row(17);
  std::vector<float> out(32);
  for (const GgmlType type : {GgmlType::q4_0, GgmlType::iq4_nl})
    EXPECT_DEATH(dequantise_row(type, row, out), "the row holds the bytes of its columns");
  std::vector<float> block(256);
  for (const GgmlType type : {GgmlType::q2_k, GgmlType::q3_k, GgmlType::iq4_xs}) {
    std::vector<std::byte> too_long(ggml_type_info(type).block_bytes + 1);
    EXPECT_DEATH(dequantise_row(type, too_long, block), "the row holds the bytes of its columns");
  }
  EXPECT_DEATH(dequantise_row(GgmlType::q8_1, row, out), "the type has an unpacker");
}

}  // namespace
}  // namespace quire
