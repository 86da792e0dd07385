#pragma once
// Reads how a Hugging Face folder quantises its matrices, from `quantization_config` of config.json.
#include <cstdint>
#include <string>
#include <vector>

#include "format/json.h"
#include "quire/base/error.h"

namespace quire {

enum class CheckpointMethod : std::uint8_t { none, gptq, awq, compressed_tensors, fp8, mxfp4 };

// The format of quantised weights in a `quantization_config`.
struct CheckpointWeights {
  std::uint32_t bits = 0;
  bool is_float = false;
  bool has_zeros = false;   // the groups have zero points
  std::uint32_t group = 0;  // columns that share a scale; 0: one scale per row, per block or for the whole matrix

  bool operator==(const CheckpointWeights&) const = default;
};

struct CheckpointScheme {
  CheckpointMethod method = CheckpointMethod::none;
  std::vector<CheckpointWeights> weights;  // one entry; compressed-tensors may have several
  bool has_offset_zeros = false;           // GPTQ: the file stores each zero point minus 1
  bool reorders = false;                   // GPTQ: the columns of a group may be anywhere in the row
  bool has_activations = false;            // the config also quantises activations
};

// Returns the scheme; its method is `none` if there is no quantization_config. Errors: `unsupported` or `corrupt`, naming the key.
Result<CheckpointScheme> checkpoint_scheme(const JsonRef& config);

// Returns a description such as "GPTQ, 4 bits in groups of 128".
std::string describe(const CheckpointScheme& scheme);

}  // namespace quire
