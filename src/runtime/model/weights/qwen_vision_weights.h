#pragma once
// The weights of the encoders of Qwen2-VL and Qwen2.5-VL, in the kernels' formats.
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/vision_weights.h"

namespace quire {

// Weights of a layer. A norm without a bias is an RMS norm. Without a gate, the activation is applied to `up`.
struct QwenVisionLayerWeights {
  LayerNormWeights attention_norm, mlp_norm;
  Linear queries, keys, values, output, gate, up, down;
};

struct QwenVisionWeights {
  // One matrix for the values [colour][frame][row][column] of a patch, or one matrix per frame for [colour][row][column].
  std::vector<Linear> patches;
  std::vector<QwenVisionLayerWeights> layers;
  LayerNormWeights norm;           // before the squares of patches are merged
  Linear merged, connector;        // the two products of the merger, with a GELU between them
  std::vector<std::string> notes;  // about the cache of packed weights

  [[nodiscard]] std::uint64_t bytes() const;
};

// Errors: as load_weights().
Result<QwenVisionWeights> load_qwen_vision(const ModelFile& file, const VisionConfig& config, ThreadPool& pool,
                                           const PackingOptions& options = {});

}  // namespace quire
