// quire list: prints the models in the cache. Runs on the main thread, without a network.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/format_bytes.h"
#include "cli/command.h"
#include "cli/find_model.h"

namespace quire {

Command add_list_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("list", "List the downloaded models");
  command->footer("Models that other programs downloaded into the same folder (HF_HUB_CACHE) are listed too.");
  return {command, []() -> Result<int> {
            const auto options = hub_options_of_process();
            if (!options) return std::unexpected(options.error());
            const auto models = HubCache(options->cache, options->url_cache).list();
            if (models.empty()) {
              fmt::print("No models in {}. Download one with quire pull ORG/REPO.\n", options->cache.string());
              return 0;
            }
            std::size_t width = std::string_view("NAME").size();
            for (const CachedModel& model : models) width = std::max(width, model.name.size());
            fmt::print("{:<{}}  {:>10}  {:>5}  {}\n", "NAME", width, "SIZE", "FILES", "PATH");
            for (const CachedModel& model : models)
              fmt::print("{:<{}}  {:>10}  {:>5}  {}{}\n", model.name, width, format_bytes(model.num_bytes),
                         model.is_complete ? std::to_string(model.num_files) : "-", model.path.string(),
                         model.is_complete ? "" : " (incomplete, or not a model for quire)");
            return 0;
          }};
}

}  // namespace quire
