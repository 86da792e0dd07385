#pragma once
// Reads the layers with a state from a model's files. families_hybrid.cpp assigns a reader to each family.
#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// The readers set the state and the kinds of layers in `config`. All other members of the shape must already be set. An invalid value
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

// Removes the state shape of a model in which all layers are attention layers.
void drop_unused_states(ModelConfig& config);

// Reads the number of KV heads. A file with states may store the number per layer: a layer with 0 KV heads has a state instead of
// attention.
void read_kv_heads(const GgufFile& file, bool may_have_states, ConfigFields<GgufFile>& fields, ModelConfig& config);

}  // namespace quire
