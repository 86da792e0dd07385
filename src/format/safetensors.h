#pragma once
// safetensors: one file, or a folder of shards with model.safetensors.index.json.
//
// Every offset is checked: inside the file, equal to shape times element size, overlapping no other tensor. Errors are `corrupt`, or
// `unsupported` for an element type without an unpacker; `field` is the tensor or the key.
#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/ggml_type.h"
#include "format/mapped_file.h"
#include "quire/base/error.h"

namespace quire {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;                 // as the file has it: "F32", "BF16", "F8_E4M3", ...
  std::vector<std::uint64_t> shape;  // outermost first, as in PyTorch: [rows, columns]
  std::span<const std::byte> data;   // in place; not necessarily aligned to the element

  [[nodiscard]] std::uint64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  [[nodiscard]] std::uint64_t rows() const;
  // f32, f16 or bf16. Errors: `unsupported`, naming the tensor and its dtype.
  [[nodiscard]] Result<GgmlType> type() const;
};

// Immutable after open, hence thread-safe. Views stay valid as long as the file object (moving it is fine) or, after parse(), the bytes.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  // Borrows `bytes`. `name` opens the error messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string_view name);

  [[nodiscard]] std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  // nullptr if there is none.
  [[nodiscard]] const SafetensorsTensor* find(std::string_view name) const;
  [[nodiscard]] const MappedFile* file() const { return file_ ? &*file_ : nullptr; }

 private:
  SafetensorsFile() = default;

  std::optional<MappedFile> file_;
  std::vector<SafetensorsTensor> tensors_;  // sorted by name
};

// The weights of a Hugging Face folder: model.safetensors, or the shards its index names.
class SafetensorsFolder {
 public:
  // Errors besides the files' own: `not_found` (no safetensors in the folder), `corrupt` (the index names a missing file or tensor, a
  // path outside the folder, or a tensor in two shards).
  static Result<SafetensorsFolder> open(const std::string& folder);

  [[nodiscard]] const SafetensorsTensor* find(std::string_view name) const;
  // Every tensor once, shard by shard.
  [[nodiscard]] std::vector<const SafetensorsTensor*> tensors() const;
  // The shards' maps.
  [[nodiscard]] std::vector<const MappedFile*> files() const;

 private:
  SafetensorsFolder() = default;
  Result<void> index_shards();
  [[nodiscard]] Result<void> check_index(const boost::json::value& index, const std::string& path) const;

  std::vector<SafetensorsFile> shards_;
  std::unordered_map<std::string_view, const SafetensorsTensor*> index_;
};

}  // namespace quire
