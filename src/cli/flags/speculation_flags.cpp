#include "cli/flags/speculation_flags.h"

#include <boost/json/parse.hpp>
#include <optional>

namespace quire {

Result<NgramOptions> parse_speculative_config(std::string_view text) {
  const auto refuse = [](std::string message) {
    return fail(ErrorCode::invalid_argument, "speculative-config", std::move(message),
                R"(write '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}')");
  };
  boost::system::error_code failed;
  const boost::json::value config = boost::json::parse(text, failed);
  if (failed || !config.is_object()) return refuse("is no JSON object");
  std::optional<std::uint32_t> count, least, most;
  for (const auto& [name, value] : config.get_object()) {
    if (name == "method") {
      if (!value.is_string() || value.get_string() != "ngram") return refuse("only the method \"ngram\" is there");
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
  if (!count) return refuse("num_speculative_tokens is missing");
  NgramOptions options{.num_speculative_tokens = *count};
  options.prompt_lookup_min = least.value_or(most.value_or(options.prompt_lookup_min));
  options.prompt_lookup_max = most.value_or(least.value_or(options.prompt_lookup_max));
  return options;
}

void add_speculation_flags(CLI::App& app, NgramOptions& speculation) {
  app.add_option_function<std::string>(
         "--speculative-config",
         [&speculation](const std::string& text) {
           const Result<NgramOptions> config = parse_speculative_config(text);
           if (!config) throw CLI::ValidationError(config.error().to_string());
           speculation = *config;
         },
         R"(Drafts, as vLLM's flag says it: '{"method": "ngram", "num_speculative_tokens": 4}')")
      ->type_name("JSON");
  app.add_option("--num-speculative-tokens", speculation.num_speculative_tokens,
                 "Where an answer repeats what the prompt or the answer has said, compute so many tokens of it in one step: pays for code "
                 "edits, summaries, JSON; the same answers, bit for bit (default 0: off)");
  app.add_option("--prompt-lookup-min", speculation.prompt_lookup_min, "Tokens in a row that must be repeated for that, at least")
      ->capture_default_str();
  app.add_option("--prompt-lookup-max", speculation.prompt_lookup_max, "The longest run that is looked for")->capture_default_str();
}

}  // namespace quire
