#pragma once
// The tensors of a Hugging Face folder as matrices and vectors, those of a quantised matrix together as one.
#include <span>
#include <vector>

#include "format/safetensors.h"
#include "quire/base/error.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// Every tensor, in any order; a quantised matrix goes by the name of its weight, which for gpt-oss's experts ends without ".weight". Left
// out: scales of activations and of keys and values, which are served as they are. `read` is for shapes that are kept as tensors. Errors:
// `corrupt` or `unsupported`, naming the tensor: one that is missing, of another shape than the others, or of a kind that the scheme does
// not describe.
Result<std::vector<TensorView>> assemble_tensors(const CheckpointScheme& scheme, std::span<const SafetensorsTensor* const> tensors,
                                                 const ReadTensor& read);

}  // namespace quire
