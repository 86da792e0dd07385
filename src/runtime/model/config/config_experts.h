#pragma once
// Reads the part of config.json that describes a mixture of experts. families_experts.cpp assigns a reader to each family.
#include "format/json.h"
#include "runtime/model/config/families.h"

namespace quire {

// The readers set the members of `config` for the experts, their router and the dense layers. The shape and expert_tensors must already be
// set. An invalid value becomes the error of `fields`.
void read_plain_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_granite_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_ernie_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_hunyuan_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_lfm2_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_routed_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config);

}  // namespace quire
