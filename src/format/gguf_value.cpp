// Converts metadata values to C++ types. The parser has checked that the bytes exist; this file checks types and ranges. Each error names
// the key.
#include <fmt/format.h>

#include <cstring>

#include "format/gguf.h"

namespace quire {

std::string_view gguf_value_type_name(GgufValueType type) {
  constexpr std::array<std::string_view, 13> kNames{"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                                    "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<std::size_t>(type)];
}

namespace gguf_detail {
namespace {

std::unexpected<Error> wrong_type(std::string_view key, std::string_view wanted, const GgufValue& value) {
  const bool array = value.type == GgufValueType::array;
  return fail(ErrorCode::corrupt, std::string(key),
              fmt::format("expected {}, found {}{}", wanted, array ? "an array of " : "",
                          gguf_value_type_name(array ? value.element_type : value.type)),
              "convert the model again");
}

GgufValueType item_type(const GgufValue& value) {
  return value.type == GgufValueType::array ? value.element_type : value.type;
}

template <class T>
T load(const GgufValue& value, std::uint64_t index) {
  T number;
  std::memcpy(&number, value.bytes.data() + index * sizeof(T), sizeof(T));
  return number;
}

template <class T>
Integer load_integer(const GgufValue& value, std::uint64_t index) {
  const T number = load<T>(value, index);
  return {number < 0, static_cast<std::uint64_t>(static_cast<std::int64_t>(number))};
}

}  // namespace

std::unexpected<Error> missing_key(std::string_view key) {
  return fail(ErrorCode::corrupt, std::string(key), "the key is missing", "convert the model again with a current llama.cpp");
}

std::unexpected<Error> out_of_range(std::string_view key, const std::string& value) {
  return fail(ErrorCode::corrupt, std::string(key), value + " is out of range", "convert the model again");
}

Result<void> expect_scalar(std::string_view key, const GgufValue& value) {
  if (value.type == GgufValueType::array) return wrong_type(key, "a single value", value);
  return {};
}

Result<void> expect_array(std::string_view key, const GgufValue& value) {
  if (value.type != GgufValueType::array) return wrong_type(key, "an array", value);
  return {};
}

Result<Integer> read_integer(std::string_view key, const GgufValue& value, std::uint64_t index) {
  switch (item_type(value)) {
    case GgufValueType::u8:
      return Integer{false, load<std::uint8_t>(value, index)};
    case GgufValueType::u16:
      return Integer{false, load<std::uint16_t>(value, index)};
    case GgufValueType::u32:
      return Integer{false, load<std::uint32_t>(value, index)};
    case GgufValueType::u64:
      return Integer{false, load<std::uint64_t>(value, index)};
    case GgufValueType::i8:
      return load_integer<std::int8_t>(value, index);
    case GgufValueType::i16:
      return load_integer<std::int16_t>(value, index);
    case GgufValueType::i32:
      return load_integer<std::int32_t>(value, index);
    case GgufValueType::i64:
      return load_integer<std::int64_t>(value, index);
    default:
      return wrong_type(key, "an integer", value);
  }
}

Result<double> read_float(std::string_view key, const GgufValue& value, std::uint64_t index) {
  if (item_type(value) == GgufValueType::f32) return load<float>(value, index);
  if (item_type(value) == GgufValueType::f64) return load<double>(value, index);
  return wrong_type(key, "a float", value);
}

Result<bool> read_bool(std::string_view key, const GgufValue& value, std::uint64_t index) {
  if (item_type(value) != GgufValueType::boolean) return wrong_type(key, "a bool", value);
  const auto byte = load<std::uint8_t>(value, index);
  if (byte > 1) return out_of_range(key, std::to_string(byte));
  return byte == 1;
}

Result<std::string_view> read_string(std::string_view key, const GgufValue& value) {
  if (value.type != GgufValueType::string) return wrong_type(key, "a string", value);
  return std::string_view{reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

Result<std::vector<std::string_view>> read_strings(std::string_view key, const GgufValue& value) {
  if (value.type != GgufValueType::array || value.element_type != GgufValueType::string)
    return wrong_type(key, "an array of strings", value);
  std::vector<std::string_view> strings;
  strings.reserve(value.count);
  const char* next = reinterpret_cast<const char*>(value.bytes.data());
  for (std::uint64_t i = 0; i < value.count; ++i) {  // lengths were checked when the file was read
    std::uint64_t length = 0;
    std::memcpy(&length, next, sizeof(length));
    strings.emplace_back(next + sizeof(length), length);
    next += sizeof(length) + length;
  }
  return strings;
}

}  // namespace gguf_detail
}  // namespace quire
