#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

struct SpeculativeConfig {
  NgramOptions ngram;
  std::string draft_model;  // empty: drafts are looked up
};

// --speculative-config, as vLLM has it, and a flag for each of its fields that counts here.
void add_speculation_flags(CLI::App& app, EngineOptions& options);

// {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}; of the last two one says both, and
// without them they are 5. Or {"method": "draft_model", "model": "small.gguf", "num_speculative_tokens": 4}; the method may be left out.
[[nodiscard]] Result<SpeculativeConfig> parse_speculative_config(std::string_view text);

}  // namespace quire
