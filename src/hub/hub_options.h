#pragma once
// The sources and folders of downloaded models, read from the environment variables of huggingface_hub.
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "quire/base/error.h"

namespace quire {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";  // without '/' at the end
  std::string token{};                              // sent only to the endpoint; empty: none
  std::filesystem::path cache{};                    // folder with models--ORG--REPO
  std::filesystem::path url_cache{};                // folder for files of other hosts
  bool is_offline = false;
};

// Returns the value of an environment variable.
using Environment = std::function<std::optional<std::string>(const char*)>;

// Reads HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE, XDG_CACHE_HOME and HOME, and the file with the token.
// An empty variable counts as not set. Errors: `invalid_argument`, with the variable as field.
Result<HubOptions> read_hub_options(const Environment& environment);

// Reports to the user, and waits. Called on the thread that downloads.
struct HubHooks {
  std::function<void(const std::string& line)> say;
  std::function<void(const std::string& what, double done)> progress;  // done: 0 to 1
  std::function<void(std::chrono::seconds)> wait;
};

}  // namespace quire
