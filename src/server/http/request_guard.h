#pragma once
// Checks a request's header before its body is read, because a browser on the user's machine may run pages of attackers. Host reveals DNS
// rebinding, Origin reveals the page, and Content-Type limits what a page can send without a preflight.
#include <optional>
#include <string>

#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

// Returns a response to send immediately: a refusal (403, 415, 421), or the answer to a preflight (204). Returns nullopt if the request is
// accepted. `expects_form_data`: the body must be multipart/form-data. A page can send such a body without a preflight, so its Origin is
// checked as well.
[[nodiscard]] std::optional<HttpResponse> guard_request(const HttpRequest& request, const ServerOptions& options,
                                                        bool expects_form_data = false);

// Returns the headers that let the page in the browser read the answer. Empty unless `cors_allow_origins` contains the page's origin.
[[nodiscard]] HttpHeaders cors_headers(const HttpRequest& request, const ServerOptions& options);

}  // namespace quire
