// Packs rows of weights into panels of 16 outputs, as the kernels read them (packed_layout.h). Used while a model is loaded, with one
// packer per tensor and thread. Packing is lossless: codes stay as in the file, and scales take 16 bits only if all of them are exact in
// f16.
#include "runtime/kernel/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "runtime/kernel/packed_layout.h"

namespace quire {
namespace {

bool all_exact_in_f16(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), is_exact_in_f16);
}

// Returns whether the two values of each pair are equal. NaN counts as equal to NaN, so that a broken scale does not change how the valid
// rows are packed.
bool all_pairs_equal(const std::vector<float>& values) {
  for (std::size_t i = 0; i + 1 < values.size(); i += 2)
    if (values[i] != values[i + 1] && !(std::isnan(values[i]) && std::isnan(values[i + 1]))) return false;
  return true;
}

// Returns whether code 8 represents zero in all groups, as in Q4_0 and symmetric GPTQ.
bool all_minus_eight(const std::vector<float>& minimums, const std::vector<float>& scales) {
  for (std::size_t i = 0; i < scales.size(); ++i)
    if (minimums[i] != -8.0F * scales[i] && !(std::isnan(minimums[i]) && std::isnan(scales[i]))) return false;
  return true;
}

void drop_second_of_pairs(std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size() / 2; ++i) values[i] = values[2 * i];
  values.resize(values.size() / 2);
}

void store_scale(std::uint8_t* at, float value, std::uint32_t bytes) {
  if (bytes == 4) {
    std::memcpy(at, &value, sizeof value);
  } else {
    const std::uint16_t half = float_to_f16_truncated(value);
    std::memcpy(at, &half, sizeof half);
  }
}

// Stores 32 codes of one row in a block.
void store_codes(std::uint8_t* block, WeightFormat format, std::uint32_t lane, const std::uint8_t* codes) {
  std::uint8_t* at = block + std::size_t{4} * lane;
  if (format == WeightFormat::q8) {
    for (std::size_t s = 0; s < 8; ++s) std::memcpy(at + 64 * s, codes + 4 * s, 4);
    return;
  }
  for (std::size_t s = 0; s < 4; ++s)
    for (std::size_t j = 0; j < 4; ++j) at[64 * s + j] = static_cast<std::uint8_t>((codes[4 * s + j] & 15) | (codes[16 + 4 * s + j] << 4));
  if (format != WeightFormat::q6) return;
  for (std::size_t half = 0; half < 2; ++half)
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint8_t* of = codes + 16 * half + j;
      at[256 + 64 * half + j] = static_cast<std::uint8_t>(of[0] >> 4 | of[4] >> 4 << 2 | of[8] >> 4 << 4 | of[12] >> 4 << 6);
    }
}

}  // namespace

MatrixPacker::MatrixPacker(WeightFormat format, std::uint32_t rows, std::uint32_t columns, const CodeTable& table) {
  QUIRE_CHECK(rows > 0 && columns > 0, "the matrix is not empty");
  QUIRE_CHECK(format != WeightFormat::q4_signed && format != WeightFormat::q6,
              "q4_signed and q6 are chosen by finish(), not by the caller");
  packed_.format = format;
  packed_.rows = rows;
  packed_.columns = columns;
  packed_.table = table;
  if (is_integer(format)) {
    QUIRE_CHECK(columns % kGroupColumns == 0, "the number of columns is a multiple of 32 for integer formats");
    packed_.scale_columns = format == WeightFormat::q8 ? kGroupColumns / 2 : kGroupColumns;
    codes_.resize(std::size_t{rows} * columns);
    scales_.resize(std::size_t{rows} * (columns / packed_.scale_columns));
    minimums_.resize(scales_.size());
    return;
  }
  packed_.panel_bytes = panel_bytes(packed_);
  packed_.storage.own().resize(packed_.panel_bytes * packed_.num_panels());
}

void MatrixPacker::put_f32(std::uint32_t row, std::span<const float> values) {
  QUIRE_CHECK(row < packed_.rows && values.size() == packed_.columns && !is_integer(packed_.format),
              "put_f32 is called for an existing row of a float format, with one value per column");
  std::uint8_t* at = packed_.storage.own().data() + (row / kPanelRows) * packed_.panel_bytes;
  const std::size_t lane = row % kPanelRows;
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (packed_.format == WeightFormat::f32) {
      std::memcpy(at + (k * kPanelRows + lane) * 4, &values[k], 4);
    } else {
      const std::uint16_t bits = float_to_bf16(values[k]);
      std::memcpy(at + (k * kPanelRows + lane) * 2, &bits, 2);
    }
  }
}

void MatrixPacker::put_bf16(std::uint32_t row, std::span<const std::uint16_t> bits) {
  QUIRE_CHECK(row < packed_.rows && bits.size() == packed_.columns && !is_integer(packed_.format),
              "put_bf16 is called for an existing row of a float format, with one value per column");
  std::uint8_t* at = packed_.storage.own().data() + (row / kPanelRows) * packed_.panel_bytes;
  const std::size_t lane = row % kPanelRows;
  for (std::size_t k = 0; k < bits.size(); ++k) {
    if (packed_.format == WeightFormat::bf16) {
      std::memcpy(at + (k * kPanelRows + lane) * 2, &bits[k], 2);
    } else {
      const float value = bf16_to_float(bits[k]);
      std::memcpy(at + (k * kPanelRows + lane) * 4, &value, 4);
    }
  }
}

void MatrixPacker::put_q4(std::uint32_t row, std::span<const std::uint8_t> codes, std::span<const float> scales,
                          std::span<const float> minimums) {
  QUIRE_CHECK(in_nibbles(packed_.format), "put_q4 is called for a format of 4 bits");
  put_codes(row, codes, scales, minimums);
}

void MatrixPacker::put_q8(std::uint32_t row, std::span<const std::uint8_t> codes, std::span<const float> scales,
                          std::span<const float> minimums) {
  QUIRE_CHECK(packed_.format == WeightFormat::q8, "put_q8 is called for format q8");
  put_codes(row, codes, scales, minimums);
}

void MatrixPacker::put_codes(std::uint32_t row, std::span<const std::uint8_t> codes, std::span<const float> scales,
                             std::span<const float> minimums) {
  const std::size_t per_row = packed_.columns / packed_.scale_columns;
  QUIRE_CHECK(row < packed_.rows && codes.size() == packed_.columns, "the row exists, and it has one code per column");
  QUIRE_CHECK(scales.size() == per_row && minimums.size() == per_row, "a row has one scale and one minimum per group");
  std::copy(codes.begin(), codes.end(), codes_.begin() + static_cast<std::ptrdiff_t>(std::size_t{row} * packed_.columns));
  std::copy(scales.begin(), scales.end(), scales_.begin() + static_cast<std::ptrdiff_t>(row * per_row));
  std::copy(minimums.begin(), minimums.end(), minimums_.begin() + static_cast<std::ptrdiff_t>(row * per_row));
}

void MatrixPacker::put_units(std::uint32_t row, std::span<const float> units) {
  const std::size_t per_row = packed_.columns / kUnitColumns * 2;
  QUIRE_CHECK(is_integer(packed_.format) && packed_.columns % kUnitColumns == 0,
              "the format is an integer format, and the columns are whole blocks of 256");
  QUIRE_CHECK(row < packed_.rows && units.size() == per_row, "the row exists, and it has the expected number of units");
  units_.resize(packed_.rows * per_row);
  std::copy(units.begin(), units.end(), units_.begin() + static_cast<std::ptrdiff_t>(row * per_row));
}

// Returns the nearest multiple of its unit for a scale (unit 0) or minimum (unit 1). all_multiples() rejects NaN and inexact multiples.
float MatrixPacker::multiple_of(const std::vector<float>& values, std::size_t index, std::uint32_t unit) const {
  const float size = units_[index / (kUnitColumns / packed_.scale_columns) * 2 + unit];
  return size == 0.0F ? 0.0F : std::nearbyint(values[index] / size);
}

bool MatrixPacker::all_multiples() const {
  if (units_.empty() || !all_exact_in_f16(units_) || !std::all_of(units_.begin(), units_.end(), [](float x) { return std::isfinite(x); }))
    return false;
  const auto is_multiple = [&](const std::vector<float>& values, std::size_t index, std::uint32_t unit) {
    const float times = multiple_of(values, index, unit);
    return times >= -128.0F && times <= 127.0F &&
           times * units_[index / (kUnitColumns / packed_.scale_columns) * 2 + unit] == values[index];
  };
  for (std::size_t i = 0; i < scales_.size(); ++i)
    if (!is_multiple(scales_, i, 0) || (packed_.has_minimums && !is_multiple(minimums_, i, 1))) return false;
  return true;
}

void MatrixPacker::store_multiple(std::uint8_t* at, const std::vector<float>& values, std::size_t index, std::uint32_t unit) const {
  const auto times = static_cast<std::int8_t>(multiple_of(values, index, unit));
  std::memcpy(at, &times, 1);
}

void MatrixPacker::choose_scale_layout() {
  if (packed_.format == WeightFormat::q8 && all_pairs_equal(scales_) && all_pairs_equal(minimums_)) {
    packed_.scale_columns = kGroupColumns;
    drop_second_of_pairs(scales_);
    drop_second_of_pairs(minimums_);
  }
  packed_.has_minimums = std::any_of(minimums_.begin(), minimums_.end(), [](float value) { return value != 0.0F; });
  if (packed_.format == WeightFormat::q4 && packed_.has_minimums && all_minus_eight(minimums_, scales_)) {
    packed_.format = WeightFormat::q4_signed;
    packed_.has_minimums = false;
  }
  // Six bits are enough if every code is in [zero code - 32, zero code + 31].
  constexpr std::uint8_t kLeast = 128 - 32, kMost = 128 + 31;
  if (packed_.format == WeightFormat::q8 &&
      std::ranges::all_of(codes_, [](std::uint8_t code) { return code >= kLeast && code <= kMost; })) {
    packed_.format = WeightFormat::q6;
    for (std::uint8_t& code : codes_) code = static_cast<std::uint8_t>(code - kLeast);
  }
  packed_.scale_bytes = all_multiples() ? 1 : all_exact_in_f16(scales_) && (!packed_.has_minimums || all_exact_in_f16(minimums_)) ? 2 : 4;
}

PackedMatrix MatrixPacker::finish() {
  if (is_integer(packed_.format)) {
    choose_scale_layout();
    packed_.panel_bytes = panel_bytes(packed_);
    packed_.storage.own().resize(packed_.panel_bytes * packed_.num_panels());
    for (std::uint32_t row = 0; row < packed_.rows; ++row) pack_row(row);
  }
  codes_ = {};
  scales_ = {};
  minimums_ = {};
  units_ = {};
  return std::move(packed_);
}

void MatrixPacker::pack_units(std::uint32_t row, std::uint8_t* panel) const {
  const std::uint32_t per_row = packed_.columns / kUnitColumns, parts = packed_.has_minimums ? 2 : 1;
  for (std::uint32_t i = 0; i < per_row; ++i)
    for (std::uint32_t part = 0; part < parts; ++part)
      store_scale(panel + i * unit_bytes(packed_) + std::size_t{2} * (part * kPanelRows + row % kPanelRows),
                  units_[2 * (std::size_t{row} * per_row + i) + part], 2);
}

void MatrixPacker::pack_row(std::uint32_t row) {
  const std::uint32_t lane = row % kPanelRows;
  const std::uint32_t per_block = kGroupColumns / packed_.scale_columns;
  const std::size_t per_row = packed_.columns / packed_.scale_columns;
  const std::size_t size = block_bytes(packed_);
  std::uint8_t* panel = packed_.storage.own().data() + (row / kPanelRows) * packed_.panel_bytes;
  if (packed_.scale_bytes == 1) pack_units(row, panel);
  std::uint8_t* block = panel + all_unit_bytes(packed_);
  for (std::uint32_t g = 0; g < packed_.columns / kGroupColumns; ++g, block += size) {
    store_codes(block, packed_.format, lane, &codes_[std::size_t{row} * packed_.columns + std::size_t{g} * kGroupColumns]);
    std::uint8_t* scales = block + code_bytes(packed_.format);
    std::uint8_t* minimums = scales + scale_block_bytes(packed_);
    for (std::uint32_t i = 0; i < per_block; ++i) {
      const std::size_t from = row * per_row + std::size_t{g} * per_block + i;
      const std::size_t to = (std::size_t{i} * kPanelRows + lane) * packed_.scale_bytes;
      if (packed_.scale_bytes == 1) {
        store_multiple(scales + to, scales_, from, 0);
        if (packed_.has_minimums) store_multiple(minimums + to, minimums_, from, 1);
        continue;
      }
      store_scale(scales + to, scales_[from], packed_.scale_bytes);
      if (packed_.has_minimums) store_scale(minimums + to, minimums_[from], packed_.scale_bytes);
    }
  }
}

void unpack_row(const PackedMatrix& matrix, std::uint32_t row, std::span<float> out) {
  QUIRE_CHECK(row < matrix.rows && out.size() == matrix.columns, "unpack_row is called for an existing row, with a buffer of one row");
  const std::uint8_t* panel = matrix.storage.data() + (row / kPanelRows) * matrix.panel_bytes;
  for (std::uint32_t k = 0; k < matrix.columns; ++k) {
    const std::size_t at = std::size_t{k} * kPanelRows + row % kPanelRows;
    if (matrix.format == WeightFormat::f32) {
      std::memcpy(&out[k], panel + at * 4, 4);
    } else if (matrix.format == WeightFormat::bf16) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, panel + at * 2, 2);
      out[k] = bf16_to_float(bits);
    } else {
      const int code = static_cast<int>(code_at(matrix, row, k)) - zero_code(matrix.format);
      out[k] = std::fma(static_cast<float>(code), scale_at(matrix, row, k), minimum_at(matrix, row, k));
    }
  }
}

}  // namespace quire
