#pragma once
// Returns the tensors of a Hugging Face folder as matrices and vectors. The tensors of a quantised matrix become one matrix.
#include <span>
#include <vector>

#include "format/safetensors.h"
#include "quire/base/error.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// Returns every tensor, in any order. A quantised matrix has the name of its weight; the names of gpt-oss's experts end without ".weight".
// Scales of activations, keys and values are left out, because these are served as they are. `read` reads shapes that are stored as
// tensors. Errors: `corrupt` or `unsupported`, naming the tensor: it is missing, has another shape than the others, or is of a kind that
// the scheme does not describe.
Result<std::vector<TensorView>> assemble_tensors(const CheckpointScheme& scheme, std::span<const SafetensorsTensor* const> tensors,
                                                 const ReadTensor& read);

}  // namespace quire
