#pragma once
// The files of a model: a GGUF file or a Hugging Face folder.
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

// A matrix, or a vector as a matrix of one row. `data` is a part of the memory map.
struct TensorView {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::uint32_t num_dims = 0;
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  std::span<const std::byte> data;
  // Set for a matrix that is stored in several tensors; then `data` has its codes. Null: `type` describes the whole matrix.
  std::shared_ptr<const QuantisedMatrix> quantised = {};
  std::uint64_t first_row = 0;  // first row in `quantised`
};

// Immutable after open(). Views are valid as long as this object. It maps the files; TensorView::data is a part of the map and must only be
// read through read().
class ModelFile {
 public:
  // Opens a GGUF file or a Hugging Face folder, reading only the headers. `mmproj` is EngineOptions::mmproj.
  static Result<ModelFile> open(const std::string& path, const std::string& mmproj = {});

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Returns the decoder's tensors. Errors: `unsupported` if an element type cannot be read.
  [[nodiscard]] Result<std::vector<TensorView>> tensors() const;
  // Returns the tensors of the vision encoder, which tensors() leaves out.
  [[nodiscard]] Result<std::vector<TensorView>> vision_tensors() const;
  [[nodiscard]] std::string name_of(TensorRole role, std::uint32_t layer, std::uint32_t expert = 0) const;
  // Returns the description of the model, with an estimate of weight_bytes from the tensor types. `held` and all sizes are those after
  // quantisation with `quantise`.
  [[nodiscard]] Result<ModelInfo> info(WeightQuantisation quantise = WeightQuantisation::none) const;
  // Copies a part of a tensor's data. Returns `io` if the file was truncated; reading the missing part through the map would end the
  // program.
  [[nodiscard]] Result<void> read(std::span<const std::byte> part, std::span<std::byte> out) const;
  // Returns a digest of the model's files: the weights, a folder's config.json and, with a vision encoder, the files that describe how
  // images are prepared. Reads these files.
  [[nodiscard]] Result<Sha256Digest> digest() const;
  // Returns a text that changes whenever a file is written to, moved or replaced. The text contains each file's path, size and times, and a
  // digest of a folder's config.json.
  [[nodiscard]] std::string identity() const;
  // Returns `io` if a file has changed since it was opened.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  ModelFile() = default;
  Result<void> open_mmproj(const std::string& path);
  [[nodiscard]] Result<TokenizerSpec> tokenizer() const;
  [[nodiscard]] std::string model_name() const;
  [[nodiscard]] Result<std::vector<TensorView>> all_tensors() const;
  void describe_images(ModelInfo& info) const;
  [[nodiscard]] std::vector<const MappedFile*> files() const;

  std::string path_;
  std::variant<std::monostate, GgufFile, SafetensorsFolder> weights_;
  ModelConfig config_;
  CheckpointScheme scheme_;
  bool has_no_lm_head_ = false;
  bool is_missing_output_ = false;
  std::optional<GgufFile> mmproj_;
  ImageInfo mmproj_images_;
};

}  // namespace quire
