#pragma once
// Reads the rotary embedding (RoPE) for config_from_hf.
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/families.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// Reads rope_scaling or rope_parameters, and the share of a head that rotates. The shape and rope_theta must already be set.
void read_rope(const ModelFamily& family, const JsonRef& json, JsonFields& fields, ModelConfig& config);

// Returns YaRN's factor for the scale of the attention scores, like transformers' yarn_get_mscale.
[[nodiscard]] double yarn_scale(double factor, double multiplier);

}  // namespace quire
