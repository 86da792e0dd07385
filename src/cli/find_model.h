#pragma once
// Turns the MODEL argument of a command into a path. Downloads the model if it is a name of the hub or a URL and is not in the cache yet.
#include <string>

#include "hub/hub_cache.h"
#include "hub/hub_options.h"
#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

// Returns the options from this process's environment.
Result<HubOptions> hub_options_of_process();

// Draws the progress on a terminal, and writes messages to stderr. Used on the main thread; the hooks share their state.
HubHooks terminal_hooks();

struct FoundModel {
  std::string path;
  std::string name{};  // ORG/REPO[:QUANT]; empty: the path or URL names the model
};

// Returns an existing path as it is, then a model of the cache, without asking the hub. Otherwise downloads the model. Any other text is
// returned as a path, which the engine will not find. Errors name `field`, if they concern the argument, and the models of the cache that
// it may mean.
Result<FoundModel> find_model(const std::string& given, const std::string& field = "MODEL");

// Replaces the model, the image encoder and the draft model by their paths, and sets the served name of a model of the hub.
Result<void> find_models(EngineOptions& options);

// Downloads the newest version of the model, even if an older one is in the cache. Errors as of find_model().
Result<CachedModel> pull_named(const std::string& given);

// Returns the error with the names of cached models: similar names if there are some, else the first ones.
Error with_cached_names(Error error, const HubCache& cache, const std::string& given);

}  // namespace quire
