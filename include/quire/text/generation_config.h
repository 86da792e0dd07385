#pragma once
// What a request's sampling is where it says nothing: a model's generation_config.json, as vLLM 0.19.0 applies it
// (ModelConfig.get_diff_sampling_param).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/api.h"
#include "quire/base/error.h"

namespace quire {

// Absent: the model says nothing, and the API's own default counts. Units and ranges are those of SamplingParams.
struct GenerationDefaults {
  std::optional<double> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<std::int64_t> top_k{};        // -1 and 0: all tokens
  std::optional<std::uint32_t> max_tokens{};  // of a chat's answer; a completion has 16
  std::optional<std::uint32_t> max_limit{};   // of any answer, whatever was asked for

  friend bool operator==(const GenerationDefaults&, const GenerationDefaults&) = default;
};

struct GenerationConfigOptions {
  std::string source = "auto";  // "auto": the file beside the model, if there is one; "vllm": none; else a folder that has one
  std::string overrides{};      // JSON in the same names, which go before those of the file
};

// Of text as generation_config.json has it: max_new_tokens is max_tokens here; other names mean nothing. As transformers tells only what
// differs from its own defaults, a top_k of 50 is none, unless it is an override.
QUIRE_API Result<GenerationDefaults> parse_generation_config(std::string_view json);

// `model`: a file or a folder. A max_new_tokens of overrides, or of a folder that was named, is max_limit as well. Errors: a file that
// cannot be read, or is no object of JSON; a value that no request could have.
QUIRE_API Result<GenerationDefaults> read_generation_config(const std::string& model, const GenerationConfigOptions& options);

// "temperature 0.6, top_p 0.95"; empty: none.
QUIRE_API std::string describe(const GenerationDefaults& defaults);

}  // namespace quire
