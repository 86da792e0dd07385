#pragma once
// Predicts from the headers of a file the formats and sizes of its weights in memory.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// Returns a description such as "Q4_1 210, F32 61", with the commonest type first.
std::string describe_types(const std::vector<TensorView>& tensors);

// Returns the packed size in bytes, assuming that every scale has the usual width of its type.
std::uint64_t estimate_packed_bytes(const TensorView& tensor);

// Returns the same tensors, with the types of their matrices after quantisation.
std::vector<TensorView> with_quantisation(std::vector<TensorView> tensors, WeightQuantisation quantise);

// Fills in `held`, `weight_bytes`, `expert_bytes`, `quantisation` and `notes` of `info`.
void describe_weights(const std::vector<TensorView>& tensors, const CheckpointScheme& scheme, ModelInfo& info);

}  // namespace quire
