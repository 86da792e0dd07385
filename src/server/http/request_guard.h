#pragma once
// Checks a request's header before its body is read. A browser runs strangers' pages on the user's machine. Host shows a name that was made
// to point here (DNS rebinding), Origin shows the page, and Content-Type limits what a page can send without a preflight.
#include <optional>
#include <string>

#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

// Returns a response to send immediately: a refusal (403, 415, 421), or the answer to a preflight (204). nullopt: the request is accepted.
// `expects_form_data`: the body must be multipart/form-data. A page can send that without a preflight, too, but its Origin has been
// checked.
[[nodiscard]] std::optional<HttpResponse> guard_request(const HttpRequest& request, const ServerOptions& options,
                                                        bool expects_form_data = false);

// Returns the headers that let the page read the answer; empty unless `cors_allow_origins` contains its origin.
[[nodiscard]] HttpHeaders cors_headers(const HttpRequest& request, const ServerOptions& options);

}  // namespace quire
