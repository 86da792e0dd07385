#pragma once
// A quantised matrix of a Hugging Face folder, which is stored in several tensors: integers (or floats of 8 or 4 bits), scales, zero
// points, and in some formats the group of each column.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/dequant.h"
#include "quire/base/error.h"

namespace quire {

// Layout of the codes.
enum class WeightEncoding : std::uint8_t {
  words_down,     // int32 [columns / per word][rows], lowest bits first (GPTQ)
  words_across,   // int32 [columns][rows / per word], in AWQ's order
  words_in_rows,  // int32 [rows][columns / per word], lowest bits first (compressed-tensors)
  bytes,          // int8 [rows][columns]
  fp8,            // e4m3 [rows][columns]
  fp4,            // e2m1 [rows][columns / 2], the first of two columns in the low 4 bits
};

enum class ScaleType : std::uint8_t { f32, f16, bf16, e8m0, e4m3 };

// Layout of the zero points.
enum class ZeroEncoding : std::uint8_t {
  none,           // not stored: the middle of the codes' range
  words_by_rows,  // int32 [group][rows / per word], in the order of the codes' words
  words_down,     // int32 [rows / per word][group]
  bytes,          // int8 [row][group]
};

// w = (code - zero) * scale. All members are read from the headers and checked for consistency; the data is not checked.
struct QuantisedMatrix {
  std::string name;  // name of the module: "model.layers.0.self_attn.q_proj"
  WeightEncoding encoding = WeightEncoding::bytes;
  std::uint32_t bits = 8;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t group = 0;       // columns that share a scale
  std::uint64_t block_rows = 1;  // rows that share a scale
  ScaleType scale_type = ScaleType::f32;
  bool scales_by_group = false;  // [group][row], else [row / block_rows][group]
  ZeroEncoding zero_encoding = ZeroEncoding::none;
  std::uint32_t zero_step = 0;   // added to each stored zero point
  bool has_zero_points = false;  // according to the config, zero points differ from the middle of the range
  bool is_reordered = false;     // according to the headers, columns are not in the order of their groups
  std::span<const std::byte> codes, scales, zeros;
  std::span<const std::byte> scale_divisor;  // one f32 for all scales; empty: 1
  std::span<const std::byte> column_groups;  // int32 [columns]; empty: in order
  std::string codes_name, scales_name, zeros_name, column_groups_name;

  [[nodiscard]] std::uint64_t num_groups() const { return (columns + group - 1) / group; }
  [[nodiscard]] std::uint64_t num_scales() const { return num_groups() * ((rows + block_rows - 1) / block_rows); }
};

// Returns "INT4", "INT8", "FP8" or "FP4".
std::string type_name(const QuantisedMatrix& matrix);

// Returns the format of the matrix's rows in memory:
// - FP8: bf16;
// - FP4: q4_table if every scale covers a multiple of 32 columns, q8 if every scale covers a multiple of 16 columns, else f32;
// - integers: q4 for 4 bits if every scale covers a multiple of 32 columns, q8 if every scale covers a multiple of 16 columns, else f32.
// Integers also become f32 if the number of columns is not a multiple of 32, or if the columns are not in the order of their groups and
// `may_reorder` is false.
UnpackedFormat unpacked_format_of(const QuantisedMatrix& matrix, bool is_reordered, bool may_reorder);

// Copies a part of a tensor's data.
using ReadTensor = std::function<Result<void>(std::span<const std::byte> part, std::span<std::byte> out)>;

// Some rows of a quantised matrix, read from the file with their scales and zero points. Used by one thread.
class QuantisedRows {
 public:
  // Reads the rows. Errors: errors of `read`; `corrupt`, naming the tensor, if a scale is NaN or infinite, or a column is in no group.
  static Result<QuantisedRows> open(const QuantisedMatrix& matrix, std::uint64_t first_row, std::uint64_t rows, bool may_reorder,
                                    const ReadTensor& read);

  [[nodiscard]] UnpackedFormat format() const { return format_; }
  // Returns the order of the columns in the rows; empty: the file's order.
  [[nodiscard]] const std::vector<std::uint32_t>& order() const { return order_; }

  // Returns the table of q4_table: the values of the codes, plus 128.
  [[nodiscard]] std::array<std::uint8_t, 16> table() const;

  // q4() to f32() write row first_row + `row` in format(); calls for another format end the program. Spans are as in Q4Row and Q8Row.
  void q4(std::uint64_t row, const Q4Row& out) const;
  void q8(std::uint64_t row, const Q8Row& out) const;
  // Returns `corrupt` if a weight is NaN or infinite.
  [[nodiscard]] Result<void> bf16(std::uint64_t row, std::span<std::uint16_t> out) const;
  void f32(std::uint64_t row, std::span<float> out) const;

 private:
  explicit QuantisedRows(const QuantisedMatrix& matrix) : matrix_(matrix) {}
  Result<void> read_codes(std::uint64_t rows, const ReadTensor& read);
  Result<void> read_scales(std::uint64_t rows, const ReadTensor& read);
  Result<void> read_column_groups(const ReadTensor& read);
  [[nodiscard]] float scale(std::uint64_t row, std::uint64_t group) const;
  [[nodiscard]] std::uint32_t zero(std::uint64_t row, std::uint64_t group) const;
  [[nodiscard]] std::uint64_t group_of(std::uint64_t column) const {
    return column_groups_.empty() ? column / matrix_.group : column_groups_[column];
  }
  // Writes the stored codes of a row, in the file's order of columns. Signed codes are increased by 128.
  void codes_of(std::uint64_t row, std::span<std::uint8_t> codes) const;
  void put_in_order(std::span<std::uint8_t> codes) const;

  const QuantisedMatrix& matrix_;
  std::uint64_t first_row_ = 0;     // first row in the matrix
  std::uint64_t codes_first_ = 0;   // first row of the codes that were read
  std::uint64_t scales_first_ = 0;  // first scale that was read
  std::vector<std::byte> codes_, zeros_;
  std::vector<float> scales_;
  std::vector<std::uint32_t> column_groups_;  // empty: in order
  std::vector<std::uint32_t> order_;
  UnpackedFormat format_ = UnpackedFormat::f32;
};

}  // namespace quire
