#pragma once
// Reads GGUF versions 2 and 3, little-endian: typed metadata and a tensor table, both views into the file.
//
// Counts, lengths, offsets, alignment and products are checked before use. Errors are `corrupt` (the file contradicts itself or is cut
// short) or `unsupported` (version, byte order, tensor type); `field` is the key or the tensor.
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/ggml_type.h"
#include "format/mapped_file.h"
#include "quire/base/error.h"

namespace quire {

// The values equal the numbers in the file format.
enum class GgufValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string_view gguf_value_type_name(GgufValueType type);

// A metadata value that is not converted yet: a view of its bytes in the file. The parser has checked that all bytes are in the file.
struct GgufValue {
  GgufValueType type = GgufValueType::u8;
  GgufValueType element_type = GgufValueType::u8;  // for arrays
  std::uint64_t count = 1;                         // number of elements of an array
  std::span<const std::byte> bytes;                // scalar: its bytes; string: its characters; array: the elements in file format
};

// A matrix of rows() x columns(). A tensor with more dimensions is treated as a matrix: the number of rows is the product of all dimensions
// except the first.
struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::f32;
  std::uint32_t num_dims = 0;
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  // in the file's order: dims[0] (the columns) runs fastest; unused dimensions are 1
  std::uint64_t offset = 0;                       // bytes from the start of the tensor data
  std::span<const std::byte> data;

  [[nodiscard]] std::uint64_t columns() const { return dims[0]; }
  [[nodiscard]] std::uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }  // checked for overflow when the file was read
};

// Immutable after open, so thread-safe. Views stay valid as long as the GgufFile (moving it is fine) or, after parse(), the bytes.
class GgufFile {
 public:
  // Opens a model's file. `path` may be any part that llama-gguf-split has written; all parts are opened and appear as one file. Errors:
  // `not_found` if a part is not in the same folder; the error names the part.
  static Result<GgufFile> open(const std::string& path);
  // Parses `bytes` as one file, which may be a part of a model. Borrows `bytes`.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);

  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  // Returns nullptr if the tensor does not exist.
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;
  // Returns the metadata keys in the file's order.
  [[nodiscard]] std::span<const std::string_view> keys() const { return keys_; }
  [[nodiscard]] const GgufValue* find(std::string_view key) const;

  // Returns the value as T: bool, an integer, float, double, std::string_view or std::string. Accepts integers of any width if the value
  // fits T, and floats of both widths. Errors: `corrupt` if the key is missing, has another type, or is out of T's range.
  template <class T>
  [[nodiscard]] Result<T> get(std::string_view key) const;
  // Returns nullopt if the key is missing. Errors: `corrupt` if the value has another type or is out of T's range.
  template <class T>
  [[nodiscard]] Result<std::optional<T>> get_optional(std::string_view key) const;
  template <class T>
  [[nodiscard]] Result<T> get_or(std::string_view key, T fallback) const;

  // Returns an array, converted as in get(). T is bool, int32, uint32, int64, uint64, float, or std::string_view (views into the file).
  template <class T>
  [[nodiscard]] Result<std::vector<T>> get_array(std::string_view key) const;

  // Returns the memory maps of open(), one per part. Empty after parse().
  [[nodiscard]] std::span<const MappedFile> files() const { return files_; }

 private:
  friend class GgufParser;
  GgufFile() = default;
  static Result<GgufFile> open_file(const std::string& path);
  // `given` is the already opened part at `path`.
  static Result<GgufFile> open_parts(const std::string& path, GgufFile given, std::uint64_t count);
  Result<void> add_part(GgufFile part);

  std::vector<MappedFile> files_;
  std::uint32_t version_ = 0;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

// Returns the file name of a model without its extension and without llama-gguf-split's part number.
std::string gguf_stem(const std::string& path);

namespace gguf_detail {

std::unexpected<Error> missing_key(std::string_view key);
std::unexpected<Error> out_of_range(std::string_view key, const std::string& value);

// A metadata integer, widened to 64 bits.
struct Integer {
  bool negative = false;
  std::uint64_t bits = 0;  // two's complement when negative
};
Result<Integer> read_integer(std::string_view key, const GgufValue& value, std::uint64_t index);
Result<double> read_float(std::string_view key, const GgufValue& value, std::uint64_t index);
Result<bool> read_bool(std::string_view key, const GgufValue& value, std::uint64_t index);
Result<std::string_view> read_string(std::string_view key, const GgufValue& value);
Result<std::vector<std::string_view>> read_strings(std::string_view key, const GgufValue& value);
Result<void> expect_scalar(std::string_view key, const GgufValue& value);
Result<void> expect_array(std::string_view key, const GgufValue& value);

// Reads element `index` of an array, or the scalar itself (index 0).
template <class T>
Result<T> read(std::string_view key, const GgufValue& value, std::uint64_t index) {
  if constexpr (std::same_as<T, bool>) {
    return read_bool(key, value, index);
  } else if constexpr (std::floating_point<T>) {
    auto number = read_float(key, value, index);
    if (!number) return std::unexpected(std::move(number.error()));
    return static_cast<T>(*number);
  } else {
    static_assert(std::integral<T>);
    auto number = read_integer(key, value, index);
    if (!number) return std::unexpected(std::move(number.error()));
    if (number->negative) {
      const auto wide = static_cast<std::int64_t>(number->bits);
      if (!std::in_range<T>(wide)) return out_of_range(key, std::to_string(wide));
      return static_cast<T>(wide);
    }
    if (!std::in_range<T>(number->bits)) return out_of_range(key, std::to_string(number->bits));
    return static_cast<T>(number->bits);
  }
}

template <class T>
inline constexpr bool is_text = std::same_as<T, std::string_view> || std::same_as<T, std::string>;

}  // namespace gguf_detail

template <class T>
Result<std::optional<T>> GgufFile::get_optional(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::optional<T>{};
  if constexpr (gguf_detail::is_text<T>) {
    auto text = gguf_detail::read_string(key, *value);
    if (!text) return std::unexpected(std::move(text.error()));
    return std::optional<T>(T(*text));
  } else {
    if (auto ok = gguf_detail::expect_scalar(key, *value); !ok) return std::unexpected(std::move(ok.error()));
    auto read = gguf_detail::read<T>(key, *value, 0);
    if (!read) return std::unexpected(std::move(read.error()));
    return std::optional<T>(*read);
  }
}

template <class T>
Result<T> GgufFile::get(std::string_view key) const {
  auto value = get_optional<T>(key);
  if (!value) return std::unexpected(std::move(value.error()));
  std::optional<T>& found = *value;
  if (!found) return gguf_detail::missing_key(key);
  return std::move(*found);
}

template <class T>
Result<T> GgufFile::get_or(std::string_view key, T fallback) const {
  auto value = get_optional<T>(key);
  if (!value) return std::unexpected(std::move(value.error()));
  return std::move(*value).value_or(std::move(fallback));
}

template <class T>
Result<std::vector<T>> GgufFile::get_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return gguf_detail::missing_key(key);
  if constexpr (gguf_detail::is_text<T>) {
    static_assert(std::same_as<T, std::string_view>);
    return gguf_detail::read_strings(key, *value);
  } else {
    if (auto ok = gguf_detail::expect_array(key, *value); !ok) return std::unexpected(std::move(ok.error()));
    std::vector<T> items;
    items.reserve(value->count);
    for (std::uint64_t i = 0; i < value->count; ++i) {
      auto item = gguf_detail::read<T>(key, *value, i);
      if (!item) return std::unexpected(std::move(item.error()));
      items.push_back(*item);
    }
    return items;
  }
}

}  // namespace quire
