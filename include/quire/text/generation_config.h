#pragma once
// Default sampling parameters from a model's generation_config.json, applied as in vLLM 0.19.0 (ModelConfig.get_diff_sampling_param), or
// from the keys general.sampling.* of a GGUF file, which llama.cpp's converter copies from that file.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"

namespace quire {

// Default values for requests that do not set a parameter. If a default is absent too, the API's default applies. Units and ranges are
// those in SamplingParams.
struct GenerationDefaults {
  std::optional<double> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<std::int64_t> top_k{};        // -1 and 0: all tokens
  std::optional<std::uint32_t> max_tokens{};  // default for chat answers; for completions the default is always 16
  std::optional<std::uint32_t> max_limit{};   // upper limit for every answer, whatever the request asks for

  friend bool operator==(const GenerationDefaults&, const GenerationDefaults&) = default;
};

// The sources of default sampling parameters.
struct GenerationConfigOptions {
  std::string source = "auto";  // "auto": the model's own values, if any; "vllm": none; else a folder with a generation_config.json
  std::string overrides{};      // JSON object with the file's names; its values replace the file's values
};

// Default sampling parameters, and where they come from.
struct GenerationConfig {
  GenerationDefaults defaults{};
  std::string source{};                // such as "generation_config.json"; empty: there is no source
  std::vector<std::string> ignored{};  // parameters of the GGUF file that quire does not support, such as "mirostat"
};

// Parses the text of a generation_config.json. max_new_tokens becomes max_tokens. Unknown names are ignored. A top_k of 50 is ignored,
// because it is transformers' default; read_generation_config() keeps a top_k of 50 in `overrides`.
QUIRE_API Result<GenerationDefaults> parse_generation_config(std::string_view json);

// Reads the defaults for `model`, a file or a folder. The keys of a GGUF file have priority over a generation_config.json in its folder. A
// max_new_tokens from overrides, or from an explicitly named folder, also sets max_limit. Errors: the file cannot be read or is not a JSON
// object; a value is not allowed in a request.
QUIRE_API Result<GenerationConfig> read_generation_config(const std::string& model, const GenerationConfigOptions& options);

// Returns the defaults as text, such as "temperature 0.6, top_p 0.95"; empty if there are no defaults.
QUIRE_API std::string describe(const GenerationDefaults& defaults);

}  // namespace quire
