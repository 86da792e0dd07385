#pragma once
// What a request's header must say before its body is read. A browser runs pages of strangers on the machine of this server's user: Host
// tells a name that was made to point here (DNS rebinding), Origin the page, Content-Type what a page can send without asking.
#include <optional>
#include <string>

#include "quire/server_options.h"
#include "server/http/http.h"

namespace quire {

// What to answer at once: a refusal (400, 403, 415, 421), or a pre-flight's answer (204). Nothing: go on.
// `takes_form`: the body may be multipart/form-data, which a page can send without asking, too; its Origin has been looked at.
[[nodiscard]] std::optional<HttpResponse> guard_request(const HttpRequest& request, const ServerOptions& options, bool takes_form = false);

// Headers that let the page read the answer; none unless cors_allow_origins holds its origin.
[[nodiscard]] HttpHeaders cors_headers(const HttpRequest& request, const ServerOptions& options);

}  // namespace quire
