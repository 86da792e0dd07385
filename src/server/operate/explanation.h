#pragma once
// GET /v1/requests/{id}/explain: why a request waited, what of its prompt was missed and why, and why it gave way. The facts are the core's
// (quire/lab/explain.h); here they get their words.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/lab/explain.h"
#include "server/api/routes.h"

namespace quire {

class Tokenizer;

inline constexpr std::string_view kExplainPath = "/v1/requests/*/explain";

// As metrics and JSON name a cause, and what it says to a reader; nothing without words is told.
[[nodiscard]] std::string_view name_of(EventCause cause);
[[nodiscard]] std::string_view name_of(MissCause cause);

// JSON. `shows_others`: of a prompt that diverged, also the text that was stored in its place, which may be another client's.
[[nodiscard]] std::string explanation_json(std::string_view id, std::span<const RequestExplanation> requests, const Tokenizer& tokenizer,
                                           bool shows_others);

// Server's thread; answered when the engine thread has looked, of the tenant's own requests only.
[[nodiscard]] Reply explain_request(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
