#pragma once
// What the files say of layers with a state.
#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// Whether an architecture may have such layers: then the lists of layers and the feed-forward part are read here.
bool may_have_states(std::string_view architecture);

// Both fill what `config` has of states, and of layers that have none; the shape is known but for what they set. What does not fit is an
// error of `fields`.
void read_states(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_states(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);

// The number of KV heads, which such a file may say by layer; 0 of them: the layer attends to nothing, and has a state.
void read_kv_heads(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);

}  // namespace quire
