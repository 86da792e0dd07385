#pragma once
// Nemotron-H: its files count blocks, of which each either looks back (a state, or attention) or is a feed-forward part.
#include "format/gguf.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/model_config.h"

namespace quire {

constexpr bool has_blocks(std::string_view architecture) {
  return architecture.starts_with("nemotron_h");
}

// Makes layers of them: one that looks back, and what follows it. What the rest of the config says is known; `num_layers` are the blocks.
void read_blocks(const JsonRef& json, JsonFields& fields, ModelConfig& config);
void read_blocks(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config);

}  // namespace quire
