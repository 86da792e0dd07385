#pragma once
// What the weights of a file will be in memory, told from its headers.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "runtime/model/config/checkpoint_scheme.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// "Q4_1 210, F32 61", the commonest first.
std::string describe_types(const std::vector<TensorView>& tensors);

// Packed size, should every scale of the type take its usual width.
std::uint64_t estimate_packed_bytes(const TensorView& tensor);

// The same tensors, with the types that matrices will have.
std::vector<TensorView> quantised_as(std::vector<TensorView> tensors, WeightQuantisation quantise);

// Fills in `held`, `weight_bytes`, `expert_bytes`, `quantisation` and `notes`.
void describe_held(const std::vector<TensorView>& tensors, const CheckpointScheme& scheme, ModelInfo& info);

}  // namespace quire
