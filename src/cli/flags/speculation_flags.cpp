#include "cli/flags/speculation_flags.h"

#include <boost/json/parse.hpp>
#include <optional>

namespace quire {

Result<SpeculativeConfig> parse_speculative_config(std::string_view text) {
  const auto refuse = [](std::string message) {
    return fail(ErrorCode::invalid_argument, "speculative-config", std::move(message),
                R"(write '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}' or )"
                R"('{"method": "draft_model", "model": "small.gguf", "num_speculative_tokens": 4}')");
  };
  boost::system::error_code failed;
  const boost::json::value config = boost::json::parse(text, failed);
  if (failed || !config.is_object()) return refuse("is no JSON object");
  std::optional<std::uint32_t> count, least, most;
  std::string method, model;
  for (const auto& [name, value] : config.get_object()) {
    if (name == "method" || name == "model") {
      if (!value.is_string() || value.get_string().empty()) return refuse(std::string(name) + " is a text");
      (name == "method" ? method : model) = std::string(value.get_string());
      continue;
    }
    std::optional<std::uint32_t>* const number = name == "num_speculative_tokens" ? &count
                                                 : name == "prompt_lookup_min"    ? &least
                                                 : name == "prompt_lookup_max"    ? &most
                                                                                  : nullptr;
    if (number == nullptr) return refuse("there is no \"" + std::string(name) + "\"");
    if (!value.is_int64() || value.get_int64() < 1 || value.get_int64() > 1024) return refuse(std::string(name) + " is 1 to 1024");
    *number = static_cast<std::uint32_t>(value.get_int64());
  }
  if (method.empty()) method = model.empty() ? "ngram" : "draft_model";
  if (method != "ngram" && method != "draft_model") return refuse("only the methods \"ngram\" and \"draft_model\" are there");
  const bool has_model = method == "draft_model";
  if (has_model == model.empty()) return refuse(has_model ? "model is missing" : "ngram has no model");
  if (has_model && (least || most)) return refuse("a draft model looks nothing up");
  if (!count) return refuse("num_speculative_tokens is missing");
  NgramOptions options{.num_speculative_tokens = *count};
  options.prompt_lookup_min = least.value_or(most.value_or(options.prompt_lookup_min));
  options.prompt_lookup_max = most.value_or(least.value_or(options.prompt_lookup_max));
  return SpeculativeConfig{.ngram = options, .draft_model = std::move(model)};
}

void add_speculation_flags(CLI::App& app, EngineOptions& options) {
  NgramOptions& speculation = options.speculation;
  app.add_option_function<std::string>(
         "--speculative-config",
         [&options](const std::string& text) {
           Result<SpeculativeConfig> config = parse_speculative_config(text);
           if (!config) throw CLI::ValidationError(config.error().to_string());
           options.speculation = config->ngram;
           options.draft_model = std::move(config->draft_model);
         },
         R"(Drafts, as vLLM's flag says it: '{"method": "ngram", "num_speculative_tokens": 4}' or '{"method": "draft_model", "model": )"
         R"("small.gguf", "num_speculative_tokens": 4}')")
      ->type_name("JSON");
  app.add_option(
         "--speculative-model", options.draft_model,
         "A smaller model of the same vocabulary, a GGUF file or a Hugging Face folder, that guesses the next tokens, which are then "
         "computed in one step: as many as pay, up to --num-speculative-tokens; the same answers, bit for bit")
      ->type_name("MODEL");
  app.add_option("--num-speculative-tokens", speculation.num_speculative_tokens,
                 "Where an answer repeats what the prompt or the answer has said, compute so many tokens of it in one step: pays for code "
                 "edits, summaries, JSON; the same answers, bit for bit (default 0: off, or 4 with --speculative-model)");
  app.add_option("--prompt-lookup-min", speculation.prompt_lookup_min, "Tokens in a row that must be repeated for that, at least")
      ->capture_default_str();
  app.add_option("--prompt-lookup-max", speculation.prompt_lookup_max, "The longest run that is looked for")->capture_default_str();
}

}  // namespace quire
