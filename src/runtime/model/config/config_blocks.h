#pragma once
// Reads Nemotron-H configs. Their files number blocks: each block is either a state, attention or a feed-forward part.
#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// Refuses a `time_step_limit` that would change outputs. Steps are never below 0 and softplus never exceeds 1e30, so wider limits have no
// effect.
void check_step_limit(const JsonRef& json, JsonFields& fields);

// Builds layers from the blocks: each attention or state block forms a layer with the feed-forward block after it. All other members of
// `config` must be set. `num_layers` is the number of blocks on entry and the number of layers on return.
void read_blocks(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_blocks(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);

}  // namespace quire
