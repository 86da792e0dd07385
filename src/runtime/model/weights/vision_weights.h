#pragma once
// The weights of the part of a model that sees, as the kernels read them.
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
  Linear patches;                  // of [colour][row][column] of a patch
  std::vector<float> class_token;  // [hidden_size]; empty: there is none
  std::vector<float> positions;    // [VisionConfig::num_rows()][hidden_size]
  LayerNormWeights pre_norm;       // before the first layer; empty: there is none
  std::vector<VisionLayerWeights> layers;
  LayerNormWeights norm;           // behind the last layer; empty: there is none
  std::vector<float> mean_norm;    // [hidden_size]: of averaged patches, with its 1; empty: they are not
  Linear connector;                // of shuffled patches, or the first of two
  Linear second;                   // of two
  std::vector<std::string> notes;  // on keeping packed weights

  [[nodiscard]] std::uint64_t bytes() const;
};

// `unsupported`, naming it, where one is quantised.
Result<void> check_plain(const std::vector<TensorView>& tensors);

// Of the towers of SigLIP and CLIP, and what makes embeddings of their outputs. Errors: as load_weights().
Result<VisionWeights> load_vision(const ModelFile& file, const VisionConfig& config, ThreadPool& pool, const PackingOptions& options = {});

}  // namespace quire
