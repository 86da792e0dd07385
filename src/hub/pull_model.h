#pragma once
// Downloads a model into the cache, or finds it there. Blocks; called by commands on the main thread before an engine exists.
#include <filesystem>
#include <string>

#include "hub/hub_cache.h"
#include "hub/hub_options.h"
#include "hub/model_name.h"

namespace quire {

// Downloads the files of the newest commit that are not in the cache, compares each with its digest, and returns the model. Reports the
// chosen quantization and the progress. A later call continues a download that was interrupted. Two processes may download the same model.
// Errors: errors of HubApi and of choose_files(); `io` (also: too little disk space, found before the download begins); `corrupt`: a file
// that does not match its digest, which is removed.
Result<CachedModel> pull_model(const HubOptions& options, const HubName& name, const HubHooks& hooks);

// Downloads the file at a URL, or all parts of a split GGUF. Compares it with the digest in the fragment #sha256=HEX, if the URL has one.
Result<CachedModel> pull_url(const HubOptions& options, const std::string& url, const HubHooks& hooks);

}  // namespace quire
