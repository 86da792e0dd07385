// Converts the tensors of a quantised matrix to rows in the kernels' formats. Called while weights are packed, on any thread. Layouts
// follow AutoGPTQ's and GPTQModel's QuantLinear.pack, AutoAWQ's WQLinear_GEMM.from_linear, compressed-tensors' pack_to_int32, and the OCP
// 8-bit float specification.
#include "runtime/model/weights/quantised_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "format/small_floats.h"

namespace quire {
namespace {

constexpr std::uint32_t kGroup = 32;
constexpr const char* kDownloadAgain = "download the model again";

// Position of column i of eight in a word of AWQ, in half-bytes.
constexpr std::array<std::uint32_t, 8> kAwqPlaces{0, 4, 1, 5, 2, 6, 3, 7};

template <class T>
T load(const std::vector<std::byte>& bytes, std::uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::uint32_t scale_bytes(ScaleType type) {
  return type == ScaleType::f32 ? 4 : type == ScaleType::e8m0 || type == ScaleType::e4m3 ? 1 : 2;
}

float scale_at(ScaleType type, const std::vector<std::byte>& bytes, std::uint64_t index) {
  if (type == ScaleType::f32) return load<float>(bytes, index);
  if (type == ScaleType::e8m0) return e8m0_to_float(load<std::uint8_t>(bytes, index));
  if (type == ScaleType::e4m3) return e4m3_to_float(load<std::uint8_t>(bytes, index));
  const auto bits = load<std::uint16_t>(bytes, index);
  return type == ScaleType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

std::array<float, 256> all_e4m3() {
  std::array<float, 256> values;
  for (std::size_t bits = 0; bits < values.size(); ++bits) values[bits] = e4m3_to_float(static_cast<std::uint8_t>(bits));
  return values;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = all_e4m3();
  return values;
}

}  // namespace

std::string type_name(const QuantisedMatrix& matrix) {
  const bool is_float = matrix.encoding == WeightEncoding::fp8 || matrix.encoding == WeightEncoding::fp4;
  return fmt::format("{}{}", is_float ? "FP" : "INT", matrix.bits);
}

UnpackedFormat unpacked_format_of(const QuantisedMatrix& matrix, bool is_reordered, bool may_reorder) {
  if (matrix.encoding == WeightEncoding::fp8) return UnpackedFormat::bf16;
  const bool one_group = matrix.group >= matrix.columns;
  const auto whole = [&](std::uint64_t size) { return matrix.columns % size == 0 && (one_group || matrix.group % size == 0); };
  if (matrix.encoding == WeightEncoding::fp4)
    return whole(kGroup) ? UnpackedFormat::q4_table : whole(kGroup / 2) ? UnpackedFormat::q8 : UnpackedFormat::f32;
  if ((is_reordered && !may_reorder) || matrix.columns % kGroup != 0) return UnpackedFormat::f32;
  if (matrix.bits == 4 && whole(kGroup)) return UnpackedFormat::q4;
  return whole(kGroup / 2) ? UnpackedFormat::q8 : UnpackedFormat::f32;
}

Result<QuantisedRows> QuantisedRows::open(const QuantisedMatrix& matrix, std::uint64_t first_row, std::uint64_t rows, bool may_reorder,
                                          const ReadTensor& read) {
  QUIRE_CHECK(first_row + rows <= matrix.rows && matrix.group > 0, "the rows are within the matrix");
  QuantisedRows made(matrix);
  made.first_row_ = first_row;
  if (auto done = made.read_codes(rows, read); !done) return std::unexpected(std::move(done.error()));
  if (auto done = made.read_scales(rows, read); !done) return std::unexpected(std::move(done.error()));
  if (auto done = made.read_column_groups(read); !done) return std::unexpected(std::move(done.error()));
  made.format_ = unpacked_format_of(matrix, !made.column_groups_.empty(), may_reorder);
  if (made.format_ == UnpackedFormat::f32 || made.column_groups_.empty()) return made;
  // All groups have the same number of columns.
  std::vector<std::uint64_t> next(matrix.num_groups());
  for (std::uint64_t group = 0; group < next.size(); ++group) next[group] = group * matrix.group;
  made.order_.resize(matrix.columns);
  for (std::uint32_t column = 0; column < matrix.columns; ++column) made.order_[next[made.column_groups_[column]]++] = column;
  return made;
}

// Reads the codes. If the file stores codes row by row, reads only the codes of the requested rows.
Result<void> QuantisedRows::read_codes(std::uint64_t rows, const ReadTensor& read) {
  std::span<const std::byte> codes = matrix_.codes;
  if (matrix_.encoding != WeightEncoding::words_down && matrix_.encoding != WeightEncoding::words_across) {
    const std::size_t row_size = codes.size() / matrix_.rows;
    codes = codes.subspan(first_row_ * row_size, rows * row_size);
    codes_first_ = first_row_;
  }
  codes_.resize(codes.size());
  if (auto done = read(codes, codes_); !done) return done;
  if (matrix_.zeros.empty()) return {};
  zeros_.resize(matrix_.zeros.size());
  return read(matrix_.zeros, zeros_);
}

Result<void> QuantisedRows::read_scales(std::uint64_t rows, const ReadTensor& read) {
  std::span<const std::byte> part = matrix_.scales;
  const std::size_t size = scale_bytes(matrix_.scale_type);
  if (!matrix_.scales_by_group) {
    const std::uint64_t first = first_row_ / matrix_.block_rows;
    const std::uint64_t last = (first_row_ + rows + matrix_.block_rows - 1) / matrix_.block_rows;
    scales_first_ = first * matrix_.num_groups();
    part = part.subspan(scales_first_ * size, (last - first) * matrix_.num_groups() * size);
  }
  std::vector<std::byte> bytes(part.size());
  if (auto done = read(part, bytes); !done) return done;
  float divisor = 1.0F;
  if (!matrix_.scale_divisor.empty())
    if (auto done = read(matrix_.scale_divisor, std::as_writable_bytes(std::span(&divisor, 1))); !done) return done;
  scales_.resize(bytes.size() / size);
  for (std::size_t i = 0; i < scales_.size(); ++i) {
    scales_[i] = scale_at(matrix_.scale_type, bytes, i) / divisor;
    if (std::isfinite(scales_[i])) continue;
    return fail(ErrorCode::corrupt, matrix_.scales_name, fmt::format("scale {} is {}, but must be finite", scales_first_ + i, scales_[i]),
                kDownloadAgain);
  }
  return {};
}

// Reads the group of each column. Drops the list if the columns are in the order of their groups, which -1 for all columns also means.
Result<void> QuantisedRows::read_column_groups(const ReadTensor& read) {
  if (matrix_.column_groups.empty()) return {};
  std::vector<std::byte> bytes(matrix_.column_groups.size());
  if (auto done = read(matrix_.column_groups, bytes); !done) return done;
  const std::uint64_t groups = matrix_.num_groups();
  std::vector<std::uint64_t> counts(groups);
  bool in_order = true, none = true;
  column_groups_.resize(matrix_.columns);
  for (std::uint64_t column = 0; column < matrix_.columns; ++column) {
    const auto group = load<std::int32_t>(bytes, column);
    none = none && group == -1;
    if (none) continue;
    if (group < 0 || static_cast<std::uint64_t>(group) >= groups)
      return fail(ErrorCode::corrupt, matrix_.column_groups_name,
                  fmt::format("column {} is in group {}, but there are {} groups", column, group, groups), kDownloadAgain);
    column_groups_[column] = static_cast<std::uint32_t>(group);
    in_order = in_order && column_groups_[column] == column / matrix_.group;
    ++counts[column_groups_[column]];
  }
  if (none || in_order) column_groups_.clear();
  for (std::uint64_t group = 0; group < groups && !column_groups_.empty(); ++group)
    if (counts[group] != matrix_.group)
      return fail(ErrorCode::corrupt, matrix_.column_groups_name,
                  fmt::format("group {} has {} columns instead of {}", group, counts[group], matrix_.group), kDownloadAgain);
  return {};
}

float QuantisedRows::scale(std::uint64_t row, std::uint64_t group) const {
  if (matrix_.scales_by_group) return scales_[group * matrix_.rows + row];
  return scales_[row / matrix_.block_rows * matrix_.num_groups() + group - scales_first_];
}

std::uint32_t QuantisedRows::zero(std::uint64_t row, std::uint64_t group) const {
  const std::uint32_t per_word = 32 / matrix_.bits;
  const std::uint32_t mask = (1U << matrix_.bits) - 1;
  switch (matrix_.zero_encoding) {
    case ZeroEncoding::none:
      break;
    case ZeroEncoding::words_by_rows: {
      const auto place = static_cast<std::uint32_t>(row % per_word);
      // The step is added to whole words, because GPTQModel subtracts it from whole words.
      const std::uint32_t step = matrix_.zero_step * (std::numeric_limits<std::uint32_t>::max() / mask);
      const std::uint32_t word = load<std::uint32_t>(zeros_, group * (matrix_.rows / per_word) + row / per_word) + step;
      return (word >> (matrix_.bits * (matrix_.encoding == WeightEncoding::words_across ? kAwqPlaces[place] : place))) & mask;
    }
    case ZeroEncoding::words_down:
      return (load<std::uint32_t>(zeros_, row / per_word * matrix_.num_groups() + group) >> (matrix_.bits * (row % per_word))) & mask;
    case ZeroEncoding::bytes:
      return (load<std::uint8_t>(zeros_, row * matrix_.num_groups() + group) + (1U << (matrix_.bits - 1))) & mask;
  }
  return 1U << (matrix_.bits - 1);
}

void QuantisedRows::codes_of(std::uint64_t row, std::span<std::uint8_t> codes) const {
  const std::uint32_t bits = matrix_.bits;
  const std::uint32_t per_word = 32 / bits;
  const std::uint32_t mask = (1U << bits) - 1;
  const std::size_t count = codes.size();
  const std::uint64_t own = row - codes_first_;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes_.data());
  // Unpacks words: word i is at first + i * stride, and its lowest bits come first.
  const auto unpack_words = [&](std::uint64_t first, std::uint64_t stride) {
    for (std::size_t k = 0; k < count; k += per_word, first += stride) {
      auto word = load<std::uint32_t>(codes_, first);
      for (std::size_t i = k; i < std::min<std::size_t>(k + per_word, count); ++i, word >>= bits)
        codes[i] = static_cast<std::uint8_t>(word & mask);
    }
  };
  switch (matrix_.encoding) {
    case WeightEncoding::words_down:
      unpack_words(row, matrix_.rows);
      break;
    case WeightEncoding::words_in_rows:
      unpack_words(own * ((count + per_word - 1) / per_word), 1);
      break;
    case WeightEncoding::words_across: {
      const std::uint32_t shift = bits * kAwqPlaces[row % per_word];
      const std::uint64_t first = row / per_word, stride = matrix_.rows / per_word;
      for (std::size_t k = 0; k < count; ++k)
        codes[k] = static_cast<std::uint8_t>((load<std::uint32_t>(codes_, first + k * stride) >> shift) & mask);
      break;
    }
    case WeightEncoding::bytes:
      for (std::size_t k = 0; k < count; ++k) codes[k] = bytes[own * count + k] ^ 0x80U;
      break;
    case WeightEncoding::fp8:
      std::copy_n(bytes + own * count, count, codes.begin());
      break;
    case WeightEncoding::fp4:
      for (std::size_t k = 0; k < count; ++k) codes[k] = (bytes[own * (count / 2) + k / 2] >> (k % 2 * 4)) & 15U;
      break;
  }
}

std::array<std::uint8_t, 16> QuantisedRows::table() const {
  return matrix_.encoding == WeightEncoding::fp4 ? kTwiceE2m1 : std::array<std::uint8_t, 16>{};
}

void QuantisedRows::put_in_order(std::span<std::uint8_t> codes) const {
  if (order_.empty()) return;
  const std::vector<std::uint8_t> own(codes.begin(), codes.end());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = own[order_[i]];
}

void QuantisedRows::q4(std::uint64_t row, const Q4Row& out) const {
  const bool is_fp4 = format_ == UnpackedFormat::q4_table;
  QUIRE_CHECK((is_fp4 || format_ == UnpackedFormat::q4) && out.codes.size() == matrix_.columns,
              "the matrix is in a 4-bit format, and the buffer has one code per column");
  row += first_row_;
  codes_of(row, out.codes);
  put_in_order(out.codes);
  for (std::size_t i = 0; i < out.scales.size(); ++i) {
    const std::uint64_t group = i * kGroup / matrix_.group;
    out.scales[i] = scale(row, group) * (is_fp4 ? 0.5F : 1.0F);
    out.minimums[i] = is_fp4 ? 0.0F : -static_cast<float>(zero(row, group)) * out.scales[i];
  }
}

void QuantisedRows::q8(std::uint64_t row, const Q8Row& out) const {
  QUIRE_CHECK(format_ == UnpackedFormat::q8 && out.codes.size() == matrix_.columns,
              "the matrix is in format q8, and the buffer has one code per column");
  row += first_row_;
  codes_of(row, out.codes);
  put_in_order(out.codes);
  const bool is_fp4 = matrix_.encoding == WeightEncoding::fp4;
  for (std::uint8_t& code : out.codes) code = is_fp4 ? kTwiceE2m1[code] : code;
  for (std::size_t i = 0; i < out.scales.size(); ++i) {
    const std::uint64_t group = i * (kGroup / 2) / matrix_.group;
    out.scales[i] = scale(row, group) * (is_fp4 ? 0.5F : 1.0F);
    out.minimums[i] = 0.0F;
    if (is_fp4) continue;
    const std::uint32_t zero_point = zero(row, group);
    if (matrix_.bits == 8)
      out.minimums[i] = static_cast<float>(128 - static_cast<int>(zero_point)) * out.scales[i];
    else
      for (std::uint8_t& code : out.codes.subspan(i * (kGroup / 2), kGroup / 2)) code = static_cast<std::uint8_t>(128 + code - zero_point);
  }
}

Result<void> QuantisedRows::bf16(std::uint64_t row, std::span<std::uint16_t> out) const {
  QUIRE_CHECK(format_ == UnpackedFormat::bf16 && out.size() == matrix_.columns,
              "the matrix is in format bf16, and the buffer has one value per column");
  row += first_row_;
  std::vector<std::uint8_t> codes(out.size());
  codes_of(row, codes);
  for (std::size_t first = 0; first < out.size(); first += matrix_.group) {
    const float own_scale = scale(row, first / matrix_.group);
    for (std::size_t i = first; i < std::min<std::size_t>(first + matrix_.group, out.size()); ++i) {
      const float value = e4m3_values()[codes[i]] * own_scale;
      if (!std::isfinite(value))
        return fail(ErrorCode::corrupt, matrix_.codes_name, fmt::format("row {} column {} is {}, but must be finite", row, i, value),
                    kDownloadAgain);
      out[i] = float_to_bf16(value);
    }
  }
  return {};
}

void QuantisedRows::f32(std::uint64_t row, std::span<float> out) const {
  QUIRE_CHECK(format_ == UnpackedFormat::f32 && out.size() == matrix_.columns,
              "the matrix is in format f32, and the buffer has one value per column");
  row += first_row_;
  std::vector<std::uint8_t> codes(out.size());
  codes_of(row, codes);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t group = group_of(i);
    if (matrix_.encoding == WeightEncoding::fp4)
      out[i] = static_cast<float>(kTwiceE2m1[codes[i]] - 128) * 0.5F * scale(row, group);
    else
      out[i] = static_cast<float>(static_cast<int>(codes[i]) - static_cast<int>(zero(row, group))) * scale(row, group);
  }
}

}  // namespace quire
