// quire rm: removes a downloaded model. Runs on the main thread, without a network.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "base/format_bytes.h"
#include "cli/command.h"
#include "cli/find_model.h"
#include "hub/model_name.h"

namespace quire {
namespace {

constexpr int kNotRemoved = 1;

struct RemoveFlags {
  std::string model;
  bool yes = false;
};

bool is_confirmed(const std::string& what) {
  fmt::print(stderr, "Remove {}? [y/N] ", what);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Result<int> remove_model(const RemoveFlags& flags) {
  const auto options = hub_options_of_process();
  if (!options) return std::unexpected(options.error());
  const auto name = parse_model_name(flags.model, options->endpoint);
  if (!name) return std::unexpected(name.error());
  const HubCache cache(options->cache, options->url_cache);
  const auto* hub_name = std::get_if<HubName>(&*name);
  const auto* url = std::get_if<FileUrl>(&*name);
  if (hub_name == nullptr && url == nullptr)
    return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("'{}' is not a name that quire list prints", flags.model.substr(0, 200)),
                "write ORG/REPO, ORG/REPO:QUANT or a URL; remove other files with rm");
  const std::string text = hub_name != nullptr ? hub_name->text() : url->url;
  std::uint64_t bytes = 0;
  bool is_there = false;
  for (const CachedModel& model : cache.list()) {
    const bool is_in_repo = hub_name != nullptr && hub_name->variant.empty() && model.name.starts_with(text + ":");
    if (model.name != text && !is_in_repo) continue;
    is_there = true;
    bytes += model.num_bytes;
  }
  if (!is_there && hub_name != nullptr && !hub_name->variant.empty())
    if (const auto found = cache.find(*hub_name)) {
      is_there = true;
      bytes = found->num_bytes;
    }
  if (!is_there)
    return std::unexpected(with_cached_names(
        {ErrorCode::not_found, "MODEL", fmt::format("{} is not in {}", text, cache.root().string()), "quire list prints the names"}, cache,
        text));
  const std::string what = fmt::format("{} ({})", text, format_bytes(bytes));
  if (!flags.yes && isatty(STDIN_FILENO) == 0)
    return fail(ErrorCode::invalid_argument, "--yes", fmt::format("is required: {} would be removed", what), "add --yes to remove it");
  if (!flags.yes && !is_confirmed(what)) return kNotRemoved;
  const auto freed = hub_name != nullptr ? cache.remove(*hub_name) : cache.remove_url(url->url);
  if (!freed) return std::unexpected(freed.error());
  fmt::print("Removed {}: {} freed\n", text, format_bytes(*freed));
  return 0;
}

}  // namespace

Command add_rm_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("rm", "Remove a downloaded model");
  auto flags = std::make_shared<RemoveFlags>();
  command->add_option("model", flags->model, "Name that quire list prints; ORG/REPO removes all quantizations of the repository")
      ->required()
      ->type_name("MODEL");
  command->add_flag("--yes", flags->yes, "Remove the model without asking. Required if stdin is not a terminal");
  command->footer("Example: quire rm bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0");
  return {command, [flags]() { return remove_model(*flags); }};
}

}  // namespace quire
