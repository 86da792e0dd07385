// Reads a config (its length in two bytes) and then a safetensors file. All rows of the quantised matrices can be read, or there is an
// error.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "fuzz/subject.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/weights/quantised_matrix.h"
#include "runtime/model/weights/quantised_tensors.h"

namespace {

constexpr std::uint64_t kMostValues = 1 << 20;

quire::Result<void> copy(std::span<const std::byte> part, std::span<std::byte> out) {
  QUIRE_CHECK(part.size() == out.size(), "a part of another size");
  if (!part.empty()) std::memcpy(out.data(), part.data(), part.size());
  return {};
}

void read_rows(const quire::QuantisedMatrix& matrix, bool may_reorder) {
  const auto rows = quire::QuantisedRows::open(matrix, 0, matrix.rows, may_reorder, copy);
  if (!rows) {
    QUIRE_CHECK(!rows.error().field.empty() && !rows.error().message.empty(), "an error has a field and a message");
    return;
  }
  QUIRE_CHECK(rows->order().empty() || (may_reorder && rows->order().size() == matrix.columns), "an order of other columns");
  const bool four_bits = rows->format() == quire::UnpackedFormat::q4 || rows->format() == quire::UnpackedFormat::q4_table;
  std::vector<float> floats(matrix.columns), scales(matrix.columns / (four_bits ? 32 : 16)), minimums(scales.size());
  std::vector<std::uint16_t> halves(matrix.columns);
  std::vector<std::uint8_t> codes(matrix.columns);
  for (std::uint64_t row = 0; row < matrix.rows; ++row) {
    if (four_bits) {
      rows->q4(row, {codes, scales, minimums});
      for (const std::uint8_t code : codes) QUIRE_CHECK(code < 16, "a code of more than four bits");
    } else if (rows->format() == quire::UnpackedFormat::q8) {
      rows->q8(row, {codes, scales, minimums});
    } else if (rows->format() == quire::UnpackedFormat::bf16) {
      if (!rows->bf16(row, halves)) return;
    } else {
      rows->f32(row, floats);
    }
    for (const float scale : scales) QUIRE_CHECK(std::isfinite(scale), "a scale that is none");
  }
}

}  // namespace

static quire::test::FuzzSubject subject("an assembled matrix");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::span<const std::uint8_t> rest(data + 2, size - 2);
  const std::size_t length = std::min<std::size_t>(rest.size(), data[0] | data[1] << 8);
  const auto json = quire::parse_json({reinterpret_cast<const char*>(rest.data()), length}, "config.json");
  if (!json) return 0;
  const auto scheme = quire::checkpoint_scheme(quire::JsonRef(*json, "config.json"));
  if (!scheme) {
    QUIRE_CHECK(!scheme.error().field.empty() && !scheme.error().message.empty(), "an error has a field and a message");
    return 0;
  }
  const auto file = quire::SafetensorsFile::parse(std::as_bytes(rest.subspan(length)), "fuzz");
  if (!file) return 0;
  std::vector<const quire::SafetensorsTensor*> tensors;
  for (const quire::SafetensorsTensor& tensor : file->tensors()) tensors.push_back(&tensor);
  const auto views = quire::assemble_tensors(*scheme, tensors, copy);
  if (!views) {
    QUIRE_CHECK(!views.error().field.empty() && !views.error().message.empty(), "an error has a field and a message");
    return 0;
  }
  for (const quire::TensorView& view : *views) {
    if (view.quantised == nullptr || view.rows > kMostValues / view.columns) continue;
    subject.reached();
    read_rows(*view.quantised, true);
    read_rows(*view.quantised, false);
  }
  return 0;
}
