#pragma once
// How a Hugging Face folder says that its matrices are quantised: `quantization_config` of config.json.
#include <cstdint>
#include <string>
#include <vector>

#include "format/json.h"
#include "quire/base/error.h"

namespace quire {

enum class CheckpointMethod : std::uint8_t { none, gptq, awq, compressed_tensors, fp8, mxfp4 };

// One kind of quantised weights that the config describes.
struct CheckpointWeights {
  std::uint32_t bits = 0;
  bool is_float = false;
  bool has_zeros = false;   // zero points
  std::uint32_t group = 0;  // columns that share a scale; 0: it is for whole rows, for blocks, or for the whole matrix

  bool operator==(const CheckpointWeights&) const = default;
};

struct CheckpointScheme {
  CheckpointMethod method = CheckpointMethod::none;
  std::vector<CheckpointWeights> weights;  // one, but for compressed-tensors, where there may be several
  bool adds_one = false;                   // GPTQ: the file keeps zero points less 1
  bool reorders = false;                   // GPTQ: columns of a group lie anywhere in the row
  bool has_activations = false;            // the model was made for quantised activations, too
};

// Without a quantization_config the method is none. Errors: `unsupported` or `corrupt`, naming the key.
Result<CheckpointScheme> checkpoint_scheme(const JsonRef& config);

// "GPTQ, 4 bits in groups of 128".
std::string describe(const CheckpointScheme& scheme);

}  // namespace quire
