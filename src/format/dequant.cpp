// Converts rows of GGUF tensors to the kernel formats and to f32. Each type has one function that unpacks a block to codes, scales and
// minimums; all conversions use this function. Called while weights are packed, on any thread, with rows of checked size. Layouts follow
// ggml-common.h, and results equal ggml's bit for bit. A new type needs one function and one line in `kUnpackers`.
#include "format/dequant.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "format/dequant_blocks.h"
#include "format/small_floats.h"

namespace quire {
namespace {

constexpr std::uint32_t kLargestBlock = 256;

using BlockUnpacker = void (*)(const std::uint8_t* in, const QuantBlock& out);

struct Unpacker {
  GgmlType type;
  UnpackedFormat format;
  BlockUnpacker unpack;
};

void unpack_q4_0(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  out.scales[0] = scale;
  out.minimums[0] = -8.0F * scale;
  nibbles_of_32(in + 2, out.codes);
}

void unpack_q4_1(const std::uint8_t* in, const QuantBlock& out) {
  out.scales[0] = half_at(in);
  out.minimums[0] = half_at(in + 2);
  nibbles_of_32(in + 4, out.codes);
}

void unpack_q8_0(const std::uint8_t* in, const QuantBlock& out) {
  set_group_of_32(out, 0, half_at(in), 0.0F);
  for (int i = 0; i < 32; ++i) out.codes[i] = in[2 + i] ^ 0x80;
}

// Writes 32 codes: four low bits from `low` and the fifth bit from `high`. Adds `bias` to each code.
void fifth_bits_of_32(const std::uint8_t* high, const std::uint8_t* low, std::uint8_t bias, std::uint8_t* codes) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, high, sizeof(bits));
  nibbles_of_32(low, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>((codes[i] | (((bits >> i) & 1U) << 4)) + bias);
}

void unpack_q5_0(const std::uint8_t* in, const QuantBlock& out) {
  set_group_of_32(out, 0, half_at(in), 0.0F);
  fifth_bits_of_32(in + 2, in + 6, 128 - 16, out.codes);
}

void unpack_q5_1(const std::uint8_t* in, const QuantBlock& out) {
  set_group_of_32(out, 0, half_at(in), half_at(in + 2));
  fifth_bits_of_32(in + 4, in + 8, 128, out.codes);
}

// A 6-bit scale and minimum of Q4_K or Q5_K. Groups 0..3 use the low six bits of bytes 0..7. For groups 4..7, bytes 8..11 hold the low four
// bits, and the top two bits of bytes 0..7 hold the upper two.
struct ScaleAndMinimum {
  std::uint8_t scale;
  std::uint8_t minimum;
};
ScaleAndMinimum k_group(const std::uint8_t* packed, int group) {
  if (group < 4) return {static_cast<std::uint8_t>(packed[group] & 63), static_cast<std::uint8_t>(packed[group + 4] & 63)};
  const std::uint8_t low = packed[group + 4];
  return {static_cast<std::uint8_t>((low & 0x0F) | (packed[group - 4] >> 6 << 4)),
          static_cast<std::uint8_t>((low >> 4) | (packed[group] >> 6 << 4))};
}

void unpack_q4_k(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  const float minimum = half_at(in + 2);
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = k_group(in + 4, group);
    out.scales[group] = scale * s;
    out.minimums[group] = -(minimum * m);
    const std::uint8_t* low = in + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) out.codes[32 * group + i] = (low[i] >> shift) & 0x0F;
  }
}

void unpack_q5_k(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  const float minimum = half_at(in + 2);
  const std::uint8_t* high = in + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = k_group(in + 4, group);
    set_group_of_32(out, group, scale * s, -(minimum * m));
    const std::uint8_t* low = in + 48 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i)
      out.codes[32 * group + i] = static_cast<std::uint8_t>(128 + (((low[i] >> shift) & 0x0F) | (((high[i] >> group) & 1) << 4)));
  }
}

// Returns two bits of a code. Each half of 128 columns has 32 bytes; quarter q of the half uses bit pair q of each byte.
std::uint8_t bit_pair(const std::uint8_t* low, int quarter, int i) {
  return (low[quarter / 4 * 32 + i] >> (quarter % 4 * 2)) & 3;
}

void unpack_q2_k(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in + 80);
  const float minimum = half_at(in + 82);
  for (int group = 0; group < 16; ++group) {
    out.scales[group] = scale * static_cast<float>(in[group] & 0x0F);
    out.minimums[group] = -(minimum * static_cast<float>(in[group] >> 4));
  }
  for (int quarter = 0; quarter < 8; ++quarter)
    for (int i = 0; i < 32; ++i) out.codes[32 * quarter + i] = 128 + bit_pair(in + 16, quarter, i);
}

// Returns the scale of a group. The file stores scale + 32 in six bits: bytes 0..7 hold the low four bits of groups 0..7 and 8..15, and
// byte 8 + group % 4 holds the upper two bits.
int q3_k_scale(const std::uint8_t* packed, int group) {
  const int low = (packed[group % 8] >> (group / 8 * 4)) & 0x0F;
  const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

// Bit `quarter` of the first 32 bytes is the third bit of the codes.
void unpack_q3_k(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in + 108);
  for (int group = 0; group < 16; ++group) {
    out.scales[group] = scale * static_cast<float>(q3_k_scale(in + 96, group));
    out.minimums[group] = 0.0F;
  }
  for (int quarter = 0; quarter < 8; ++quarter) {
    for (int i = 0; i < 32; ++i) {
      const int code = bit_pair(in + 32, quarter, i) | ((in[i] >> quarter) & 1) << 2;
      out.codes[32 * quarter + i] = static_cast<std::uint8_t>(128 - 4 + code);
    }
  }
}

// The values of the IQ4 codes, plus 128. Differences between neighbours grow with the distance from zero.
constexpr std::array<std::uint8_t, 16> kIq4Codes{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

void unpack_iq4_nl(const std::uint8_t* in, const QuantBlock& out) {
  out.scales[0] = half_at(in);
  out.minimums[0] = 0.0F;
  nibbles_of_32(in + 2, out.codes);
}

// Each group has a scale, stored as scale + 32 in six bits: the upper two bits are in a 16-bit word, the low four in a nibble.
void unpack_iq4_xs(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  for (int group = 0; group < 8; ++group) {
    const int high = (in[2 + group / 4] >> (group % 4 * 2)) & 3;
    const int low = (in[4 + group / 2] >> (group % 2 * 4)) & 0x0F;
    out.scales[group] = scale * static_cast<float>((low | high << 4) - 32);
    out.minimums[group] = 0.0F;
    nibbles_of_32(in + 8 + 16 * group, out.codes + 32 * group);
  }
}

// A row has two halves of 128 columns, and each half four quarters of 32 columns. Quarter q of a half takes its low four bits from nibble q
// / 2 of 32 bytes, and its upper two bits from bit_pair().
void unpack_q6_k(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in + 208);
  for (int group = 0; group < 16; ++group) {
    out.scales[group] = scale * static_cast<float>(static_cast<std::int8_t>(in[192 + group]));
    out.minimums[group] = 0.0F;
  }
  for (int quarter = 0; quarter < 8; ++quarter) {
    const int half = quarter / 4;
    const int q = quarter % 4;
    const std::uint8_t* low = in + half * 64 + q % 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int code = ((low[i] >> (q / 2 * 4)) & 0x0F) | bit_pair(in + 128, quarter, i) << 4;
      out.codes[32 * quarter + i] = static_cast<std::uint8_t>(128 - 32 + code);
    }
  }
}

// All readable types, in the order in which errors list them.
constexpr std::array<Unpacker, 27> kUnpackers{{
    {GgmlType::f32, UnpackedFormat::f32, nullptr},
    {GgmlType::f16, UnpackedFormat::f32, nullptr},
    {GgmlType::bf16, UnpackedFormat::bf16, nullptr},
    {GgmlType::q8_0, UnpackedFormat::q8, unpack_q8_0},
    {GgmlType::q4_0, UnpackedFormat::q4, unpack_q4_0},
    {GgmlType::q4_1, UnpackedFormat::q4, unpack_q4_1},
    {GgmlType::q5_0, UnpackedFormat::q8, unpack_q5_0},
    {GgmlType::q5_1, UnpackedFormat::q8, unpack_q5_1},
    {GgmlType::q2_k, UnpackedFormat::q8, unpack_q2_k},
    {GgmlType::q3_k, UnpackedFormat::q8, unpack_q3_k},
    {GgmlType::q4_k, UnpackedFormat::q4, unpack_q4_k},
    {GgmlType::q5_k, UnpackedFormat::q8, unpack_q5_k},
    {GgmlType::q6_k, UnpackedFormat::q8, unpack_q6_k},
    {GgmlType::q8_k, UnpackedFormat::q8, unpack_q8_k},
    {GgmlType::iq1_s, UnpackedFormat::q8, unpack_iq1_s},
    {GgmlType::iq1_m, UnpackedFormat::q8, unpack_iq1_m},
    {GgmlType::iq2_xxs, UnpackedFormat::q8, unpack_iq2_xxs},
    {GgmlType::iq2_xs, UnpackedFormat::q8, unpack_iq2_xs},
    {GgmlType::iq2_s, UnpackedFormat::q8, unpack_iq2_s},
    {GgmlType::iq3_xxs, UnpackedFormat::q8, unpack_iq3_xxs},
    {GgmlType::iq3_s, UnpackedFormat::q8, unpack_iq3_s},
    {GgmlType::iq4_nl, UnpackedFormat::q4_table, unpack_iq4_nl},
    {GgmlType::iq4_xs, UnpackedFormat::q4_table, unpack_iq4_xs},
    {GgmlType::tq1_0, UnpackedFormat::q8, unpack_tq1_0},
    {GgmlType::tq2_0, UnpackedFormat::q8, unpack_tq2_0},
    {GgmlType::mxfp4, UnpackedFormat::q4_table, unpack_mxfp4},
    {GgmlType::nvfp4, UnpackedFormat::q8, unpack_nvfp4},
}};

// The byte offsets of the two units of a 256-column block. Its scales are multiples of the first unit, its minimums of the second.
struct UnitOffsets {
  GgmlType type;
  int scale;
  int minimum = -1;  // -1: the type has no minimums
};
constexpr std::array<UnitOffsets, 6> kUnitOffsets{{{GgmlType::q2_k, 80, 82},
                                                   {GgmlType::q3_k, 108},
                                                   {GgmlType::q4_k, 0, 2},
                                                   {GgmlType::q5_k, 0, 2},
                                                   {GgmlType::q6_k, 208},
                                                   {GgmlType::iq4_xs, 0}}};

const UnitOffsets* find_units(GgmlType type) {
  const auto* found = std::ranges::find(kUnitOffsets, type, &UnitOffsets::type);
  return found == kUnitOffsets.end() ? nullptr : found;
}

const Unpacker* find_unpacker(GgmlType type) {
  for (const Unpacker& unpacker : kUnpackers)
    if (unpacker.type == type) return &unpacker;
  return nullptr;
}

std::uint32_t group_columns(UnpackedFormat format) {
  return format == UnpackedFormat::q8 ? 16 : 32;
}

void unpack_row(const Unpacker& unpacker, std::span<const std::byte> row, std::span<std::uint8_t> codes, std::span<float> scales,
                std::span<float> minimums) {
  const GgmlTypeInfo& info = ggml_type_info(unpacker.type);
  const std::size_t columns = codes.size();
  const std::uint32_t group = group_columns(unpacker.format);
  QUIRE_CHECK(columns % info.block_columns == 0 && row.size() == columns / info.block_columns * info.block_bytes,
              "the row holds the bytes of its columns in whole blocks");
  QUIRE_CHECK(scales.size() == columns / group && minimums.size() == scales.size(),
              "there is one scale and one minimum per group of columns");
  const auto* in = reinterpret_cast<const std::uint8_t*>(row.data());
  for (std::size_t column = 0; column < columns; column += info.block_columns, in += info.block_bytes)
    unpacker.unpack(in, {codes.data() + column, scales.data() + column / group, minimums.data() + column / group});
}

void dequantise_block(const Unpacker& unpacker, const std::uint8_t* in, std::span<float> out) {
  std::array<std::uint8_t, kLargestBlock> codes;
  std::array<float, kLargestBlock / 16> scales;
  std::array<float, kLargestBlock / 16> minimums;
  unpacker.unpack(in, {codes.data(), scales.data(), minimums.data()});
  const std::uint32_t group = group_columns(unpacker.format);
  const bool by_table = unpacker.format == UnpackedFormat::q4_table;
  const std::array<std::uint8_t, 16> table = code_table(unpacker.type);
  const int zero = unpacker.format == UnpackedFormat::q4 ? 0 : 128;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int code = by_table ? table[codes[i]] : codes[i];
    out[i] = static_cast<float>(code - zero) * scales[i / group] + minimums[i / group];
  }
}

template <class T>
T load(std::span<const std::byte> row, std::size_t index) {
  T value;
  std::memcpy(&value, row.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Returns element `index` of a row of F32, F16 or BF16.
float plain_float(GgmlType type, std::span<const std::byte> row, std::size_t index) {
  if (type == GgmlType::f32) return load<float>(row, index);
  const auto bits = load<std::uint16_t>(row, index);
  return type == GgmlType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

Result<UnpackedFormat> unpacked_format(GgmlType type) {
  const Unpacker* unpacker = find_unpacker(type);
  if (unpacker) return unpacker->format;
  return fail(ErrorCode::unsupported, "", fmt::format("tensor type {} is not supported", ggml_type_name(type)), weight_type_remedy());
}

std::string supported_weight_types() {
  std::string list;
  for (const Unpacker& unpacker : kUnpackers) list += fmt::format("{}{}", list.empty() ? "" : ", ", ggml_type_name(unpacker.type));
  return list;
}

std::string weight_type_remedy() {
  return "use a model whose weights have only these types: " + supported_weight_types();
}

std::array<std::uint8_t, 16> code_table(GgmlType type) {
  if (type == GgmlType::mxfp4) return kTwiceE2m1;
  return type == GgmlType::iq4_nl || type == GgmlType::iq4_xs ? kIq4Codes : std::array<std::uint8_t, 16>{};
}

void unpack_q4_row(GgmlType type, std::span<const std::byte> row, const Q4Row& out) {
  const Unpacker* unpacker = find_unpacker(type);
  QUIRE_CHECK(unpacker && (unpacker->format == UnpackedFormat::q4 || unpacker->format == UnpackedFormat::q4_table),
              "the type unpacks to q4");
  unpack_row(*unpacker, row, out.codes, out.scales, out.minimums);
}

void unpack_q8_row(GgmlType type, std::span<const std::byte> row, const Q8Row& out) {
  const Unpacker* unpacker = find_unpacker(type);
  QUIRE_CHECK(unpacker && unpacker->format == UnpackedFormat::q8, "the type unpacks to q8");
  unpack_row(*unpacker, row, out.codes, out.scales, out.minimums);
}

bool has_units(GgmlType type) {
  return find_units(type) != nullptr;
}

void unpack_units(GgmlType type, std::span<const std::byte> row, std::span<float> units) {
  const UnitOffsets* offsets = find_units(type);
  QUIRE_CHECK(offsets != nullptr, "the type has units");
  const std::size_t block_bytes = ggml_type_info(type).block_bytes;
  QUIRE_CHECK(row.size() % block_bytes == 0 && units.size() == row.size() / block_bytes * 2, "there are two units per block");
  const auto* in = reinterpret_cast<const std::uint8_t*>(row.data());
  for (std::size_t i = 0; i < units.size(); i += 2, in += block_bytes) {
    units[i] = half_at(in + offsets->scale);
    units[i + 1] = offsets->minimum < 0 ? 0.0F : -half_at(in + offsets->minimum);
  }
}

void unpack_bf16_row(GgmlType type, std::span<const std::byte> row, std::span<std::uint16_t> out) {
  QUIRE_CHECK(type == GgmlType::f32 || type == GgmlType::f16 || type == GgmlType::bf16, "the type unpacks to bf16");
  QUIRE_CHECK(row.size() == out.size() * ggml_type_info(type).block_bytes, "the row holds the bytes of its columns in whole blocks");
  if (type == GgmlType::bf16) {
    std::memcpy(out.data(), row.data(), row.size());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = float_to_bf16(plain_float(type, row, i));
}

void dequantise_row(GgmlType type, std::span<const std::byte> row, std::span<float> out) {
  const Unpacker* unpacker = find_unpacker(type);
  QUIRE_CHECK(unpacker, "the type has an unpacker");
  const GgmlTypeInfo& info = ggml_type_info(type);
  QUIRE_CHECK(out.size() % info.block_columns == 0 && row.size() == out.size() / info.block_columns * info.block_bytes,
              "the row holds the bytes of its columns in whole blocks");
  if (!unpacker->unpack) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = plain_float(type, row, i);
    return;
  }
  const auto* in = reinterpret_cast<const std::uint8_t*>(row.data());
  for (std::size_t column = 0; column < out.size(); column += info.block_columns, in += info.block_bytes)
    dequantise_block(*unpacker, in, out.subspan(column, info.block_columns));
}

}  // namespace quire
