#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

struct SpeculativeConfig {
  NgramOptions ngram;
  std::string draft_model;  // empty: draft tokens come from prompt lookup
};

// Adds --speculative-config, as in vLLM.
void add_speculative_config_flag(CLI::App& app, EngineOptions& options);

// Parses {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}, or {"method": "draft_model",
// "model": "small.gguf", "num_speculative_tokens": 4}. "method" is optional. If only one of the two lookup lengths is given, both get its
// value; if neither is given, both are 5.
[[nodiscard]] Result<SpeculativeConfig> parse_speculative_config(std::string_view text);

}  // namespace quire
