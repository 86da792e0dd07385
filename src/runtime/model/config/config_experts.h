#pragma once
// What config.json says of a mixture of experts.
#include <string_view>

#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// Whether an architecture has experts, dense layers beside them or not.
bool is_mixture(std::string_view architecture);

// Fills what `config` has of experts, their router and the layers that have none; the shape is known. What does not fit is an error of
// `fields`.
void read_experts(const JsonRef& json, JsonFields& fields, ModelConfig& config);

}  // namespace quire
