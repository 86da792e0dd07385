#pragma once
// Unpackers: one row of a tensor into one of the kernel formats, or into plain floats. A new file type costs one function here.
//
// All results are bit-exact with the reference of ggml (up to the sign of zero): code * scale is exact in f32, and one rounding follows.
// Misuse (wrong sizes, a type that does not unpack to the format) is a broken invariant: files are checked before they get here.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "format/ggml_type.h"
#include "quire/base/error.h"

namespace quire {

// What the kernels compute with. Integers are groups along the row.
enum class UnpackedFormat : std::uint8_t {
  f32,
  bf16,
  q4,        // w = code * scale + minimum, code 0..15, one scale and minimum per 32 columns
  q4_table,  // w = (code_table(type)[code] - 128) * scale + minimum, else as q4
  q8,        // w = (code - 128) * scale + minimum, code 0..255, one scale and minimum per 16 columns
};

// The format that loses nothing: F32 and F16 -> f32, BF16 -> bf16, Q4_0 Q4_1 Q4_K -> q4, IQ4_NL IQ4_XS MXFP4 -> q4_table, the other integer
// types -> q8. Errors: `unsupported`, naming the type and those that are supported, for all others.
Result<UnpackedFormat> unpacked_format(GgmlType type);

// "F32, F16, ...": the types with an unpacked_format, as README lists them.
std::string supported_weight_types();
// What to do about a type without one.
std::string weight_type_remedy();

// One byte per code; codes.size() is the number of columns.
struct Q4Row {
  std::span<std::uint8_t> codes;
  std::span<float> scales;    // columns / 32
  std::span<float> minimums;  // columns / 32
};
struct Q8Row {
  std::span<std::uint8_t> codes;
  std::span<float> scales;    // columns / 16; a group of 32 repeats its scale
  std::span<float> minimums;  // columns / 16
};

// `row` holds row_bytes(type, columns) bytes, at any alignment.
// Of q4 and q4_table.
void unpack_q4_row(GgmlType type, std::span<const std::byte> row, const Q4Row& out);
void unpack_q8_row(GgmlType type, std::span<const std::byte> row, const Q8Row& out);
// The K types and IQ4_XS have one scale and one minimum for 256 columns, of which the others are whole multiples, -128 to 127 times.
bool has_units(GgmlType type);
// [columns / 256][2]: scale, minimum. Of a type that has them.
void unpack_units(GgmlType type, std::span<const std::byte> row, std::span<float> units);
// BF16 as it is; F16 and F32 rounded to nearest even.
void unpack_bf16_row(GgmlType type, std::span<const std::byte> row, std::span<std::uint16_t> out);

// What the codes of q4_table stand for, plus 128; of other types zeros.
std::array<std::uint8_t, 16> code_table(GgmlType type);

// Any type with an unpacked_format, to f32.
void dequantise_row(GgmlType type, std::span<const std::byte> row, std::span<float> out);

}  // namespace quire
