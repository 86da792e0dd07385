#include "cli/flags/lora_flags.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <utility>

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
    if (failed || !value.is_object()) return refuse("is no JSON object");
    for (const auto& [name, given] : value.get_object()) {
      if (name == "base_model_name") continue;  // vLLM's: what the model is called in its list
      if (!given.is_string() || (name != "name" && name != "path")) return refuse("has more than a name and a path, which are texts");
      (name == "name" ? module.name : module.path) = given.get_string();
    }
  }
  if (module.name.empty() || module.path.empty()) return refuse("has no name, or no folder");
  return module;
}

Result<AdapterOptions> adapter_options(const LoraFlags& flags) {
  AdapterOptions options = flags.options;
  if (options.max_loras == 0)
    return fail(ErrorCode::invalid_argument, "--max-loras", "is 0", "give at least 1, or leave --enable-lora out");
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
               "Serve LoRA adapters beside the model: a request names one as its \"model\" (docs/lora.md; default off)");
  app.add_option(
         "--lora-modules", flags.modules,
         "Adapters to load at the start, folders as PEFT writes them: sql=adapters/sql chat=adapters/chat, or JSON with name and path")
      ->type_name("NAME=FOLDER");
  app.add_option("--max-loras", flags.options.max_loras, "Different adapters in one step; requests for others wait for the next")
      ->capture_default_str();
  app.add_option("--max-lora-rank", flags.options.max_lora_rank,
                 "Adapters of a higher rank are refused: 1, 8, 16, 32, 64, 128, 256, 320 or 512")
      ->capture_default_str();
  app.add_option("--max-cpu-loras", flags.options.max_cpu_loras,
                 "Adapters in memory; of more, the one used longest ago is read from its folder again when it is asked for (default: "
                 "--max-loras, those of --lora-modules or 4, whichever is most)");
}

}  // namespace quire
