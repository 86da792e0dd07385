#pragma once
// Assembles the tensors of a Hugging Face folder to matrices and vectors. The tensors of a quantised matrix become one matrix.
#include <span>
#include <vector>

#include "format/safetensors.h"
#include "quire/base/error.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// Returns every tensor, in any order. A quantised matrix has the name of its weight; the names of gpt-oss's experts end without ".weight".
// Scales of activations, keys and values are omitted, because activations, keys and values are not quantised with them. `read` reads shapes
// that are stored as tensors. Errors, naming the tensor: `corrupt` or `unsupported` if the tensor is missing, contradicts the shape of
// another tensor, or does not match the scheme.
Result<std::vector<TensorView>> assemble_tensors(const CheckpointScheme& scheme, std::span<const SafetensorsTensor* const> tensors,
                                                 const ReadTensor& read);

}  // namespace quire
