#pragma once
// A model on disk, whichever of the two formats it has.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "format/ggml_type.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/quantised_matrix.h"
#include "runtime/model/weights/tensor_names.h"

namespace quire {

// A matrix, or a vector as one row of it. `data` lies in the memory map.
struct TensorView {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::uint32_t num_dims = 0;
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  std::span<const std::byte> data;
  // Of a matrix that is kept in several tensors, of which `data` are the codes; null: `type` says it all.
  std::shared_ptr<const QuantisedMatrix> quantised = {};
  std::uint64_t first_row = 0;  // of it
};

// Immutable after open. Views stay valid as long as the file.
// Holds maps of the files; TensorView::data points into them, and is for read() to copy from.
class ModelFile {
 public:
  // A GGUF file or a Hugging Face folder; `mmproj`: EngineOptions::mmproj. Reads the headers only.
  static Result<ModelFile> open(const std::string& path, const std::string& mmproj = {});

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Errors: `unsupported` for an element type that cannot be read.
  [[nodiscard]] Result<std::vector<TensorView>> tensors() const;
  // Those of what sees, which tensors() leaves out.
  [[nodiscard]] Result<std::vector<TensorView>> vision_tensors() const;
  [[nodiscard]] std::string name_of(TensorRole role, std::uint32_t layer, std::uint32_t expert = 0) const;
  // Everything but weight_bytes as loaded, which is estimated from the types.
  // What is held and how much that is, as if its matrices were quantised so.
  [[nodiscard]] Result<ModelInfo> info(WeightQuantisation quantise = WeightQuantisation::none) const;
  // Copies a part of a tensor's data. `io` where its file no longer reaches: touching the map there would stop the program.
  [[nodiscard]] Result<void> read(std::span<const std::byte> part, std::span<std::byte> out) const;
  // Of all its bytes: of the weights' files, of a folder's config.json and, where it sees, of what says how pictures are prepared. Reads
  // them.
  [[nodiscard]] Result<Sha256Digest> digest() const;
  // Changes whenever a file is written to, moved or replaced: where each is, its size and its times; of a folder also what config.json
  // says.
  [[nodiscard]] std::string identity() const;
  // `io` if a file has changed since it was opened.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  ModelFile() = default;
  Result<void> open_mmproj(const std::string& path);
  [[nodiscard]] Result<TokenizerSpec> tokenizer() const;
  [[nodiscard]] std::string model_name() const;
  [[nodiscard]] Result<std::vector<TensorView>> all_tensors() const;
  void describe_pictures(ModelInfo& info) const;
  [[nodiscard]] std::vector<const MappedFile*> files() const;

  std::string path_;
  std::variant<std::monostate, GgufFile, SafetensorsFolder> weights_;
  ModelConfig config_;
  CheckpointScheme scheme_;
  bool is_headless_ = false;
  std::optional<GgufFile> mmproj_;
  PictureInfo mmproj_pictures_;
};

}  // namespace quire
