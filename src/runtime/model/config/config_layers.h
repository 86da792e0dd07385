#pragma once
// What differs from layer to layer of a model.
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// A list with one entry per layer; empty if the config has none. A list of another length is an error of `fields`.
std::vector<JsonRef> layer_list(const JsonRef& json, std::string_view key, JsonFields& fields, const ModelConfig& config);

// Both fill config.sliding_windows; the architecture, the number of layers and which of them rotate are known. A window of no tokens and a
// list of layers that does not fit are errors of `fields`.
void read_windows(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);
void read_windows(const JsonRef& json, JsonFields& fields, ModelConfig& config);

// Where some layers have a window the others do not rotate (EXAONE 4).
void set_still_layers(ModelConfig& config);

}  // namespace quire
