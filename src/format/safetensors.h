#pragma once
// Reads safetensors: one file, or a folder of shards with model.safetensors.index.json.
//
// Checks the offsets of each tensor: they lie inside the file, their length equals shape times element size, and tensors do not overlap.
// Errors: `corrupt`, or `unsupported` for an element type without an unpacker; `field` is the tensor or the key.
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
  std::string dtype;                 // as written in the file: "F32", "BF16", "F8_E4M3", ...
  std::vector<std::uint64_t> shape;  // outermost first, as in PyTorch: [rows, columns]
  std::span<const std::byte> data;   // a view of the file; may be unaligned

  [[nodiscard]] std::uint64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  [[nodiscard]] std::uint64_t rows() const;
  // Returns f32, f16 or bf16. Errors: `unsupported`, naming the tensor and its dtype.
  [[nodiscard]] Result<GgmlType> type() const;
};

// Immutable after open, so thread-safe. Views stay valid as long as the file object (moving it is fine) or, after parse(), the bytes.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  // Parses `bytes`, which it borrows. Error messages begin with `name`.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string_view name);

  [[nodiscard]] std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  // Returns nullptr if the tensor does not exist.
  [[nodiscard]] const SafetensorsTensor* find(std::string_view name) const;
  [[nodiscard]] const MappedFile* file() const { return file_ ? &*file_ : nullptr; }

 private:
  SafetensorsFile() = default;

  std::optional<MappedFile> file_;
  std::vector<SafetensorsTensor> tensors_;  // sorted by name
};

// The weights of a Hugging Face folder: model.safetensors, or the shards that the index lists.
class SafetensorsFolder {
 public:
  // Errors in addition to the errors of the files: `not_found` (the folder has no safetensors), `corrupt` (the index names a missing file
  // or tensor or a path outside the folder, or two shards have the same tensor).
  static Result<SafetensorsFolder> open(const std::string& folder);

  [[nodiscard]] const SafetensorsTensor* find(std::string_view name) const;
  // Returns every tensor once, in the order of the shards.
  [[nodiscard]] std::vector<const SafetensorsTensor*> tensors() const;
  // Returns the memory maps of the shards.
  [[nodiscard]] std::vector<const MappedFile*> files() const;

 private:
  SafetensorsFolder() = default;
  Result<void> index_shards();
  [[nodiscard]] Result<void> check_index(const boost::json::value& index, const std::string& path) const;

  std::vector<SafetensorsFile> shards_;
  std::unordered_map<std::string_view, const SafetensorsTensor*> index_;
};

}  // namespace quire
