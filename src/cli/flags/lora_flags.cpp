#include "cli/flags/lora_flags.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <utility>

#include "cli/flags/option_flags.h"
#include "quire/engine_option_table.h"

namespace quire {

Result<AdapterModule> parse_lora_module(std::string_view text) {
  const auto refuse = [text](const char* problem) {
    return fail(ErrorCode::invalid_argument, "--lora-modules", fmt::format("'{}' {}", text, problem),
                R"(write NAME=FOLDER or '{"name": "NAME", "path": "FOLDER"}')");
  };
  AdapterModule module;
  if (!text.starts_with('{')) {
    const std::size_t at = text.find('=');
    if (at == std::string_view::npos) return refuse("has no '='");
    module = {.name = std::string(text.substr(0, at)), .path = std::string(text.substr(at + 1))};
  } else {
    boost::system::error_code failed;
    const boost::json::value value = boost::json::parse(text, failed);
    if (failed || !value.is_object()) return refuse("is not a JSON object");
    for (const auto& [name, given] : value.get_object()) {
      if (name == "base_model_name") continue;  // vLLM's name for the base model; ignored here
      if (!given.is_string() || (name != "name" && name != "path")) return refuse("must contain only the strings name and path");
      (name == "name" ? module.name : module.path) = given.get_string();
    }
  }
  if (module.name.empty() || module.path.empty()) return refuse("has no name or no folder");
  return module;
}

Result<AdapterOptions> adapter_options(const LoraFlags& flags) {
  AdapterOptions options = flags.options;
  if (options.max_loras == 0)
    return fail(ErrorCode::invalid_argument, "--max-loras", "must be at least 1, got 0", "use at least 1, or remove --enable-lora");
  if (!flags.enable_lora) options.max_loras = 0;
  for (const std::string& text : flags.modules) {
    auto module = parse_lora_module(text);
    if (!module) return std::unexpected(std::move(module.error()));
    options.modules.push_back(*std::move(module));
  }
  return options;
}

void add_lora_flags(CLI::App& app, LoraFlags& flags) {
  app.add_flag("--enable-lora", flags.enable_lora,
               "Serve LoRA adapters in addition to the model; a request selects an adapter as its \"model\" (docs/lora.md; default off)");
  app.add_option("--lora-modules", flags.modules,
                 "Adapters to load at start, as PEFT folders: sql=adapters/sql chat=adapters/chat, or JSON with name and path")
      ->type_name("NAME=FOLDER");
  add_option_flags(app, kAdapterOptions, flags.options);
  group_flags(app, OptionGroup::lora);
}

}  // namespace quire
