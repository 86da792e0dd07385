#pragma once
// The headers with which a request is passed on to the process of a model.
#include "server/http/http.h"

namespace quire {

// Only headers that a model's server reads are passed on. Forwards the client's address, so that the model's server does not take each
// client for an operator on this machine. A web page is never one, unless a key protects the server (`has_key`).
[[nodiscard]] HttpHeaders upstream_headers(const HttpRequest& request, bool has_key);

}  // namespace quire
