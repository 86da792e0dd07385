#pragma once
// GET /v1/requests/{id}/explain: why a request waited, which prompt tokens were not cached and why, and why the request was preempted. The
// core reports the causes (quire/lab/explain.h); this file describes them in words.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/lab/explain.h"
#include "server/api/routes.h"

namespace quire {

class Tokenizer;

inline constexpr std::string_view kExplainPath = "/v1/requests/*/explain";

// Return the name of a cause, as in metrics and JSON.
[[nodiscard]] std::string_view name_of(EventCause cause);
[[nodiscard]] std::string_view name_of(MissCause cause);

// Returns the JSON of the explanation. `includes_other_prompts`: if the prompt diverged from a cached prefix, includes the cached text,
// which may come from another client's prompt.
[[nodiscard]] std::string explanation_json(std::string_view id, std::span<const RequestExplanation> requests, const Tokenizer& tokenizer,
                                           bool includes_other_prompts);

// Called on the server's thread. The reply is ready when the engine thread has collected the data. Finds only the tenant's own requests.
[[nodiscard]] Reply explain_request(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
