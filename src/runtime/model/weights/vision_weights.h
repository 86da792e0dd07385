#pragma once
// The weights of a model's vision encoder, in the kernels' formats.
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/weights.h"

namespace quire {

struct LayerNormWeights {
  std::vector<float> weight, bias;
};

struct VisionLayerWeights {
  LayerNormWeights attention_norm, mlp_norm;
  Linear q, k, v, output, up, down;
};

struct VisionWeights {
  Linear patches;                  // for [colour][row][column] of a patch
  std::vector<float> class_token;  // [hidden_size]; empty: no class token
  std::vector<float> positions;    // [VisionConfig::num_rows()][hidden_size]
  LayerNormWeights pre_norm;       // before the first layer; empty: no norm
  std::vector<VisionLayerWeights> layers;
  LayerNormWeights norm;           // after the last layer; empty: no norm
  std::vector<float> mean_norm;    // [hidden_size]: norm of averaged patches, with its 1 added; empty: patches are not averaged
  Linear connector;                // for shuffled patches, or the first of two products
  Linear second;                   // the second of two products
  std::vector<std::string> notes;  // about the cache of packed weights

  [[nodiscard]] std::uint64_t bytes() const;
};

// Returns `unsupported`, naming the tensor, if a tensor is quantised.
Result<void> check_plain(const std::vector<TensorView>& tensors);

// Loads an encoder of SigLIP or CLIP and its connector. Errors: as load_weights().
Result<VisionWeights> load_vision(const ModelFile& file, const VisionConfig& config, ThreadPool& pool, const PackingOptions& options = {});

}  // namespace quire
