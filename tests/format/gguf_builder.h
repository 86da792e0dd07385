#pragma once
// Builds GGUF files in memory, valid or corrupted.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace quire::testing {

class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    data_.insert(data_.end(), begin, begin + sizeof(T));
    return *this;
  }
  Bytes& raw(std::string_view text) {
    const auto view = std::as_bytes(std::span(text));
    data_.insert(data_.end(), view.begin(), view.end());
    return *this;
  }
  Bytes& text(std::string_view text) { return number<std::uint64_t>(text.size()).raw(text); }
  Bytes& append(const Bytes& other) {
    data_.insert(data_.end(), other.data_.begin(), other.data_.end());
    return *this;
  }
  Bytes& pad(std::size_t alignment) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  Bytes& resize(std::size_t size) {
    data_.resize(size);
    return *this;
  }
  [[nodiscard]] std::size_t size() const { return data_.size(); }
  [[nodiscard]] std::span<const std::byte> view() const { return data_; }
  [[nodiscard]] std::string_view as_text() const { return {reinterpret_cast<const char*>(data_.data()), data_.size()}; }

 private:
  std::vector<std::byte> data_;
};

struct TensorSpec {
  std::string name;
  std::uint32_t type = 0;
  std::vector<std::uint64_t> dims;
  std::uint64_t offset = 0;
};

// A test may overwrite fields to corrupt the file.
struct GgufBuilder {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::size_t alignment = 32;
  Bytes metadata;
  std::uint64_t num_metadata = 0;
  std::vector<TensorSpec> tensors;
  std::size_t data_bytes = 0;
  std::int64_t extra_tensors = 0;  // added to the tensor count
  std::int64_t extra_metadata = 0;

  template <class T>
  GgufBuilder& scalar(std::string_view key, GgufValueType type, T value) {
    metadata.text(key).number(type).number(value);
    ++num_metadata;
    return *this;
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    metadata.text(key).number(GgufValueType::string).text(value);
    ++num_metadata;
    return *this;
  }
  template <class T>
  GgufBuilder& array(std::string_view key, GgufValueType element, const std::vector<T>& values) {
    metadata.text(key).number(GgufValueType::array).number(element).template number<std::uint64_t>(values.size());
    for (const T& value : values) metadata.number(value);
    ++num_metadata;
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    metadata.text(key).number(GgufValueType::array).number(GgufValueType::string).number<std::uint64_t>(values.size());
    for (const std::string& value : values) metadata.text(value);
    ++num_metadata;
    return *this;
  }
  GgufBuilder& tensor(std::string name, GgmlType type, std::vector<std::uint64_t> dims, std::uint64_t offset) {
    tensors.push_back({std::move(name), static_cast<std::uint32_t>(type), std::move(dims), offset});
    return *this;
  }

  [[nodiscard]] Bytes build() const {
    Bytes out;
    out.raw(magic).number(version);
    out.number(tensors.size() + static_cast<std::uint64_t>(extra_tensors))
        .number(num_metadata + static_cast<std::uint64_t>(extra_metadata));
    out.append(metadata);
    for (const TensorSpec& tensor : tensors) {
      out.text(tensor.name).number(static_cast<std::uint32_t>(tensor.dims.size()));
      for (const std::uint64_t size : tensor.dims) out.number(size);
      out.number(tensor.type).number(tensor.offset);
    }
    if (tensors.empty()) return out;
    out.pad(alignment);
    return out.resize(out.size() + data_bytes);
  }
};

// Makes two small tensors and one key of each kind.
inline GgufBuilder small_gguf() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .scalar("a.u32", GgufValueType::u32, std::uint32_t{4000000000})
      .scalar("a.i8", GgufValueType::i8, std::int8_t{-5})
      .scalar("a.f32", GgufValueType::f32, 1.5F)
      .scalar("a.f64", GgufValueType::f64, 2.5)
      .scalar("a.bool", GgufValueType::boolean, std::uint8_t{1})
      .array<std::int32_t>("a.ints", GgufValueType::i32, {1, -2, 3})
      .strings("a.strings", {"one", "", "three"});
  builder.tensor("first", GgmlType::f32, {4, 3}, 0).tensor("second", GgmlType::q4_1, {64, 2}, 64);
  builder.data_bytes = 64 + 80;
  return builder;
}

}  // namespace quire::testing
