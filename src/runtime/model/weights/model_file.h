#pragma once
// A model on disk, in either of the two formats.
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
  // Set for a matrix that is stored in several tensors; `data` are then its codes. Null: `type` says everything.
  std::shared_ptr<const QuantisedMatrix> quantised = {};
  std::uint64_t first_row = 0;  // first row in `quantised`
};

// Immutable after open. Views stay valid as long as this object. It holds maps of the files; TensorView::data points into them, and is only
// read through read().
class ModelFile {
 public:
  // Opens a GGUF file or a Hugging Face folder; `mmproj` is EngineOptions::mmproj. Reads the headers only.
  static Result<ModelFile> open(const std::string& path, const std::string& mmproj = {});

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Errors: `unsupported` for an element type that cannot be read.
  [[nodiscard]] Result<std::vector<TensorView>> tensors() const;
  // Returns the tensors of the vision encoder, which tensors() leaves out.
  [[nodiscard]] Result<std::vector<TensorView>> vision_tensors() const;
  [[nodiscard]] std::string name_of(TensorRole role, std::uint32_t layer, std::uint32_t expert = 0) const;
  // Returns everything but the weight_bytes of the loaded model, which are estimated from the types. `held` and all sizes are as if the
  // model's matrices were quantised with `quantise`.
  [[nodiscard]] Result<ModelInfo> info(WeightQuantisation quantise = WeightQuantisation::none) const;
  // Copies a part of a tensor's data. Returns `io` if its file has become too short: touching the map there would end the program.
  [[nodiscard]] Result<void> read(std::span<const std::byte> part, std::span<std::byte> out) const;
  // Returns a digest of all its bytes: the files of the weights, a folder's config.json and, with a vision encoder, the files that say how
  // images are prepared. Reads these files.
  [[nodiscard]] Result<Sha256Digest> digest() const;
  // Returns a text that changes whenever a file is written to, moved or replaced. It contains each file's path, size and times, and a
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
