#pragma once
// Reads settings that differ between the layers of a model.
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/families.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// Returns a list with one entry per layer; empty if the config does not have the list. A list of another length becomes the error of
// `fields`.
std::vector<JsonRef> layer_list(const JsonRef& json, std::string_view key, JsonFields& fields, const ModelConfig& config);

// Set config.sliding_windows. The number of layers and the layers that rotate must already be set. A window of 0 tokens or a list of
// another length becomes the error of `fields`.
void read_windows(const ModelFamily& family, const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);
void read_windows(const ModelFamily& family, const JsonRef& json, JsonFields& fields, ModelConfig& config);

// Turns off the rotary embedding in the layers without a window, if some layers have a window (EXAONE 4).
void set_nope_layers(ModelConfig& config);

}  // namespace quire
