#pragma once
// Unpacks one row of a tensor to a kernel format or to floats.
//
// All results equal the results of ggml's reference bit for bit, except for the sign of zero: code * scale is exact in f32, and only one
// rounding follows. Callers must have checked the file: a wrong row size, or a type that does not unpack to the requested format, fails a
// QUIRE_CHECK.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "format/ggml_type.h"
#include "quire/base/error.h"

namespace quire {

// Formats that the kernels compute with. The integer formats have groups of columns along the row.
enum class UnpackedFormat : std::uint8_t {
  f32,
  bf16,
  q4,        // w = code * scale + minimum, code 0..15, one scale and minimum per 32 columns
  q4_table,  // w = (code_table(type)[code] - 128) * scale + minimum, scales and minimums as in q4
  q8,        // w = (code - 128) * scale + minimum, code 0..255, one scale and minimum per 16 columns
};

// Returns the format without loss of precision: F32 and F16 -> f32, BF16 -> bf16, Q4_0 Q4_1 Q4_K -> q4, IQ4_NL IQ4_XS MXFP4 -> q4_table,
// the other types in supported_weight_types() -> q8. Errors: `unsupported` for all other types; the error names the type and the supported
// types.
Result<UnpackedFormat> unpacked_format(GgmlType type);

// Returns "F32, F16, ...": all types for which unpacked_format() returns a format.
std::string supported_weight_types();
// Returns what the user can do about an unsupported type.
std::string weight_type_remedy();

// Holds one byte per code; codes.size() is the number of columns.
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

// In the functions below, `row` holds row_bytes(type, columns) bytes, at any alignment.
// Unpacks types of the formats q4 and q4_table.
void unpack_q4_row(GgmlType type, std::span<const std::byte> row, const Q4Row& out);
void unpack_q8_row(GgmlType type, std::span<const std::byte> row, const Q8Row& out);
// Returns whether the type stores one unit for the scales and one for the minimums of 256 columns, as the K types and IQ4_XS do. The scales
// and minimums are whole multiples (-128 to 127) of their units.
bool has_units(GgmlType type);
// Writes `units`, [columns / 256][2]: scale unit, minimum unit. The type must have units.
void unpack_units(GgmlType type, std::span<const std::byte> row, std::span<float> units);
// Copies BF16 unchanged, and rounds F16 and F32 to nearest even.
void unpack_bf16_row(GgmlType type, std::span<const std::byte> row, std::span<std::uint16_t> out);

// Returns the values of the codes of a q4_table type, plus 128; zeros for other types.
std::array<std::uint8_t, 16> code_table(GgmlType type);

// Converts a row of any type with an `unpacked_format` to f32.
void dequantise_row(GgmlType type, std::span<const std::byte> row, std::span<float> out);

}  // namespace quire
