#pragma once
// The tensor types of GGUF. Names and sizes of all types are listed, so that an error can name a type that is not supported.
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// The values equal the numbers in the file format.
enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

struct GgmlTypeInfo {
  GgmlType type = GgmlType::f32;
  std::string_view name;            // for example "Q4_K"
  std::uint32_t block_columns = 1;  // elements per block
  std::uint32_t block_bytes = 4;
};

// Returns nullptr if this build does not know a type with this number.
const GgmlTypeInfo* find_ggml_type(std::uint32_t number);

// Returns the entry of `type`, which must be one of the enumerators.
const GgmlTypeInfo& ggml_type_info(GgmlType type);

// Returns the type's name, for example "Q4_K". Types without an unpacker have a name too.
inline std::string_view ggml_type_name(GgmlType type) {
  return ggml_type_info(type).name;
}

// Returns the number of bytes of a row with `columns` elements. Errors: `corrupt` if `columns` is not a multiple of the block's columns or
// if the product overflows 64 bits.
Result<std::uint64_t> row_bytes(GgmlType type, std::uint64_t columns);

}  // namespace quire
