#pragma once
// The headers with which a request is passed on to the process of a model.
#include "server/http/http.h"

namespace quire {

// Passes on only headers that a model's server reads. Adds the client's address, because otherwise the model's server would take each
// client for an operator on this machine. A web page never counts as an operator, unless a key protects the server (`has_key`).
[[nodiscard]] HttpHeaders upstream_headers(const HttpRequest& request, bool has_key);

}  // namespace quire
