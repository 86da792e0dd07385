#pragma once
// GET /v1/requests/{id}/explain: why a request waited, which prompt tokens were missed and why, and why it was preempted. The facts come
// from the core (quire/lab/explain.h); this file describes them in words.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/lab/explain.h"
#include "server/api/routes.h"

namespace quire {

class Tokenizer;

inline constexpr std::string_view kExplainPath = "/v1/requests/*/explain";

// Returns the name of a cause, as in metrics and JSON.
[[nodiscard]] std::string_view name_of(EventCause cause);
[[nodiscard]] std::string_view name_of(MissCause cause);

// Returns JSON. `includes_other_prompts`: for a prompt that diverged, includes the text that was stored instead, which may be another
// client's.
[[nodiscard]] std::string explanation_json(std::string_view id, std::span<const RequestExplanation> requests, const Tokenizer& tokenizer,
                                           bool includes_other_prompts);

// Called on the server's thread. The reply follows when the engine thread has collected the data. Finds the tenant's own requests only.
[[nodiscard]] Reply explain_request(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
