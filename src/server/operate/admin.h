#pragma once
// Reads the HTTP calls with which operators control the engine, and writes their answers. Names, parameters and answers are the same as in
// vLLM's POST /reset_prefix_cache, /pause, /resume, /reset_encoder_cache and /reset_mm_cache; parameters are in the query. Also writes the
// answer of POST /v1/journal/save, which only quire has.
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/engine.h"
#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

// Checks that the client may control the engine. The client must be on this machine, unless the options allow others. Without an API key, a
// request from a web page is refused.
Result<void> admit_operator(const HttpRequest& request, const ServerOptions& options);

Result<CacheResetOptions> parse_cache_reset(const HttpRequest& request);
Result<PauseOptions> parse_pause(const HttpRequest& request);
// Checks that the request has no parameters.
Result<void> parse_no_parameters(const HttpRequest& request);

// Return the bodies of the responses.
std::string cache_reset_body(bool was_reset);
std::string encoder_reset_body(bool was_reset);
std::string not_reset_body(std::string_view reason);
std::string pause_body(bool paused);
std::string saved_journal_body(const SavedJournal& saved);

}  // namespace quire
