#include "cli/flags/speculation_flags.h"

#include <boost/json/parse.hpp>
#include <optional>

#include "quire/base/option.h"

namespace quire {

Result<SpeculativeConfig> parse_speculative_config(std::string_view text) {
  const auto refuse = [](std::string message) {
    return fail(ErrorCode::invalid_argument, "speculative-config", std::move(message),
                R"(write '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}' or )"
                R"('{"method": "draft_model", "model": "small.gguf", "num_speculative_tokens": 4}')");
  };
  boost::system::error_code failed;
  const boost::json::value config = boost::json::parse(text, failed);
  if (failed || !config.is_object()) return refuse("is not a JSON object");
  std::optional<std::uint32_t> count, least, most;
  std::string method, model;
  for (const auto& [name, value] : config.get_object()) {
    if (name == "method" || name == "model") {
      if (!value.is_string() || value.get_string().empty()) return refuse(std::string(name) + " must be a non-empty string");
      (name == "method" ? method : model) = std::string(value.get_string());
      continue;
    }
    std::optional<std::uint32_t>* const number = name == "num_speculative_tokens" ? &count
                                                 : name == "prompt_lookup_min"    ? &least
                                                 : name == "prompt_lookup_max"    ? &most
                                                                                  : nullptr;
    if (number == nullptr) return refuse("contains the unknown field \"" + std::string(name) + "\"");
    if (!value.is_int64() || value.get_int64() < 1 || value.get_int64() > 1024) return refuse(std::string(name) + " must be 1 to 1024");
    *number = static_cast<std::uint32_t>(value.get_int64());
  }
  if (method.empty()) method = model.empty() ? "ngram" : "draft_model";
  if (method != "ngram" && method != "draft_model") return refuse("method must be \"ngram\" or \"draft_model\"");
  const bool has_model = method == "draft_model";
  if (has_model == model.empty()) return refuse(has_model ? "model is missing" : "the method ngram does not take a model");
  if (has_model && (least || most)) return refuse("the method draft_model does not take prompt_lookup_min or prompt_lookup_max");
  if (!count) return refuse("num_speculative_tokens is missing");
  NgramOptions options{.num_speculative_tokens = *count};
  options.prompt_lookup_min = least.value_or(most.value_or(options.prompt_lookup_min));
  options.prompt_lookup_max = most.value_or(least.value_or(options.prompt_lookup_max));
  return SpeculativeConfig{.ngram = options, .draft_model = std::move(model)};
}

void add_speculative_config_flag(CLI::App& app, EngineOptions& options) {
  app.add_option_function<std::string>(
         "--speculative-config",
         [&options](const std::string& text) {
           Result<SpeculativeConfig> config = parse_speculative_config(text);
           if (!config) throw CLI::ValidationError(config.error().to_string());
           options.speculation = config->ngram;
           options.draft_model = std::move(config->draft_model);
         },
         R"(Speculative decoding, with the JSON of vLLM's flag: '{"method": "ngram", "num_speculative_tokens": 4}' or )"
         R"('{"method": "draft_model", "model": "small.gguf", "num_speculative_tokens": 4}')")
      ->type_name("JSON")
      ->group(title_of(OptionGroup::speculation));
}

}  // namespace quire
