#pragma once
// What an operator asks of the engine over HTTP. Names, parameters and answers are those of vLLM's POST /reset_prefix_cache, /pause,
// /resume, /reset_encoder_cache and /reset_mm_cache; parameters stand in the query. And of
// POST /v1/journal/save, which is quire's own, the answer.
#include "quire/base/error.h"
#include "quire/engine.h"
#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

// Whether this client may: from this machine only, unless options say otherwise, and not on behalf of a web page that has no key.
Result<void> admit_operator(const HttpRequest& request, const ServerOptions& options);

Result<CacheResetOptions> parse_cache_reset(const HttpRequest& request);
Result<PauseOptions> parse_pause(const HttpRequest& request);
// Takes no parameters.
Result<void> parse_no_parameters(const HttpRequest& request);

// Bodies for what the engine answered.
std::string cache_reset_body(bool was_reset);
std::string pause_body(bool paused);
std::string saved_journal_body(const SavedJournal& saved);

}  // namespace quire
