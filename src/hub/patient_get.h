#pragma once
// Repeats a GET that failed for a temporary reason: the connection was cut, the host is overloaded (429), or an error of the host (5xx).
#include <functional>

#include "hub/http_client.h"
#include "hub/hub_options.h"

namespace quire {

// `next` returns the request of the next try, from the first byte that is still missing. Waits between tries, as long as the host asks for
// with Retry-After, and reports each wait. Gives up after five tries without progress, and after two if the host never answers. Returns the
// last answer, whatever its status, or the last error. Error: `overloaded` if the host asks for a wait of more than five minutes.
Result<HttpHead> get_patiently(HttpClient& client, const std::function<HttpGet()>& next, const HttpSink& sink, const HubHooks& hooks);

}  // namespace quire
