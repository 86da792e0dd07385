#pragma once
// Reads the layers with a state from a model's files. families_hybrid.cpp says which family has which reader.
#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// All of them fill the state and the kinds of layers in `config`. All other members of the shape must be set. A value that does not fit
// becomes the error of `fields`.
void read_short_convs(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_lfm2(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_granite_hybrid(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_bamba(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_falcon_h1(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_qwen3_next(const JsonRef& json, JsonFields& fields, ModelConfig& config);

void read_short_convs(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);
void read_mamba(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);  // also for config_blocks.cpp
void read_granite_hybrid(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);
void read_falcon_h1(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);
void read_qwen3_next(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);

// Clears the states of a model in which all layers attend.
void drop_unused_states(ModelConfig& config);

// Reads the number of KV heads. A file with states may store it per layer: a layer with 0 KV heads does not attend and has a state.
void read_kv_heads(const GgufFile& file, bool may_have_states, ConfigFields<GgufFile>& fields, ModelConfig& config);

}  // namespace quire
