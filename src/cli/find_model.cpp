// The one place that resolves names of models, for all commands. The engine gets a path.
#include "cli/find_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "base/nearest_name.h"
#include "cli/progress_bar.h"
#include "hub/model_name.h"
#include "hub/pull_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Draws the bar only when it changes, and ends its line before a message.
class ProgressLine {
 public:
  void show(const std::string& what, double done) {
    const int permille = static_cast<int>(done * 1000);
    if (!is_terminal_ || (what == what_ && permille == permille_)) return;
    what_ = what;
    permille_ = permille;
    show_progress(what, done);
    is_open_ = done < 1.0;
  }
  void say(const std::string& line) {
    fmt::print(stderr, "{}{}\n", is_open_ ? "\n" : "", line);
    is_open_ = false;
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool is_open_ = false;
  std::string what_;
  int permille_ = -1;
};

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns an error about the argument with the name of the flag that the user wrote.
Error in_field(Error error, const std::string& field) {
  if (error.field == "MODEL") error.field = field;
  return error;
}

Result<CachedModel> pull(const HubOptions& options, const ModelName& name, const HubCache& cache, const std::string& given) {
  if (options.is_offline)
    return std::unexpected(with_cached_names(
        {ErrorCode::not_found, "MODEL", fmt::format("{} is not complete in {}, and HF_HUB_OFFLINE is set", given, cache.root().string()),
         "unset HF_HUB_OFFLINE to download it"},
        cache, given));
  const HubHooks hooks = terminal_hooks();
  auto pulled = std::holds_alternative<FileUrl>(name) ? pull_url(options, std::get<FileUrl>(name).url, hooks)
                                                      : pull_model(options, std::get<HubName>(name), hooks);
  if (pulled) return pulled;
  const ErrorCode code = pulled.error().code;
  if (code != ErrorCode::not_found && code != ErrorCode::unavailable) return pulled;
  return std::unexpected(with_cached_names(std::move(pulled.error()), cache, given));
}

std::optional<CachedModel> find_cached(const HubCache& cache, const ModelName& name) {
  if (const auto* url = std::get_if<FileUrl>(&name)) return cache.find_url(url->url);
  return cache.find(std::get<HubName>(name));
}

}  // namespace

Result<HubOptions> hub_options_of_process() {
  return read_hub_options([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

HubHooks terminal_hooks() {
  const auto line = std::make_shared<ProgressLine>();
  return {.say = [line](const std::string& text) { line->say(text); },
          .progress = [line](const std::string& what, double done) { line->show(what, done); },
          .wait = [](std::chrono::seconds time) { std::this_thread::sleep_for(time); }};
}

Error with_cached_names(Error error, const HubCache& cache, const std::string& given) {
  constexpr std::size_t kMaxNames = 8;
  std::vector<std::string> names;
  for (const CachedModel& model : cache.list())
    if (model.is_complete) names.push_back(model.name);
  if (names.empty()) return error;
  std::vector<std::string_view> known(names.begin(), names.end());
  for (const std::string& name : names) known.push_back(std::string_view(name).substr(0, name.find(':')));
  if (const auto nearest = nearest_name(given, known); nearest && *nearest != given) {
    error.remedy = fmt::format("did you mean {}? Otherwise {}", *nearest, error.remedy);
    return error;
  }
  const std::size_t num_shown = std::min(names.size(), kMaxNames);
  error.remedy +=
      fmt::format("; downloaded models: {}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(num_shown), ", "),
                  names.size() > num_shown ? ", ... (quire list)" : "");
  return error;
}

Result<FoundModel> find_model(const std::string& given, const std::string& field) {
  if (exists(given)) return FoundModel{given};
  const auto options = hub_options_of_process();
  if (!options) return std::unexpected(options.error());
  const auto name = parse_model_name(given, options->endpoint);
  if (!name) return std::unexpected(in_field(name.error(), field));
  if (std::holds_alternative<LocalPath>(*name)) return FoundModel{given};
  const HubCache cache(options->cache, options->url_cache);
  const auto* hub_name = std::get_if<HubName>(&*name);
  const std::string served = hub_name == nullptr ? std::string() : hub_name->text();
  if (const auto cached = find_cached(cache, *name); cached && (cached->has_tokenizer || options->is_offline))
    return FoundModel{cached->path.string(), served};
  const auto pulled = pull(*options, *name, cache, given);
  if (!pulled) return std::unexpected(in_field(pulled.error(), field));
  return FoundModel{pulled->path.string(), served};
}

Result<void> find_models(EngineOptions& options) {
  auto model = find_model(options.model);
  if (!model) return std::unexpected(std::move(model.error()));
  options.model = std::move(model->path);
  if (options.served_model_name.empty()) options.served_model_name = std::move(model->name);
  for (const auto& [path, flag] : {std::pair(&options.mmproj, "--mmproj"), std::pair(&options.draft_model, "--speculative-model")}) {
    if (path->empty()) continue;
    auto found = find_model(*path, flag);
    if (!found) return std::unexpected(std::move(found.error()));
    *path = std::move(found->path);
  }
  return {};
}

Result<CachedModel> pull_named(const std::string& given) {
  const auto options = hub_options_of_process();
  if (!options) return std::unexpected(options.error());
  const auto name = parse_model_name(given, options->endpoint);
  if (!name) return std::unexpected(name.error());
  if (std::holds_alternative<LocalPath>(*name))
    return fail(ErrorCode::invalid_argument, "MODEL", fmt::format("'{}' is neither ORG/REPO nor a URL", given.substr(0, 200)),
                "write a name of the hub, such as ORG/REPO:Q4_K_M");
  const HubCache cache(options->cache, options->url_cache);
  const auto cached = find_cached(cache, *name);
  // A URL has no versions. Without a network the cached version is the newest one that is known.
  if (cached && (options->is_offline || std::holds_alternative<FileUrl>(*name))) return *cached;
  return pull(*options, *name, cache, given);
}

}  // namespace quire
