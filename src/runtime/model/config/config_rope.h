#pragma once
// The part of config_from_hf that reads rotations.
#include <string_view>

#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// rope_scaling or rope_parameters, and the share of a head that turns. Needs the architecture, the shape and the theta.
void read_rope(const JsonRef& json, JsonFields& fields, ModelConfig& config);

// Models whose positions within a picture are three (M-RoPE).
[[nodiscard]] bool has_rope_sections(std::string_view architecture);

// What YaRN makes of the scores' scale, as transformers' yarn_get_mscale.
[[nodiscard]] double yarn_scale(double factor, double multiplier);

}  // namespace quire
