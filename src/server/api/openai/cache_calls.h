#pragma once
// Calls about the cached part of a prompt, with the body of a completion or a chat. /v1/cache/probe reports how many tokens of the prompt
// are cached. /v1/cache/warm computes the prompt without an answer. "fail_if_not_cached" starts a completion only if its prompt is cached.
#include <string>
#include <string_view>

#include "server/api/serving.h"

namespace quire {

inline constexpr std::string_view kProbePath = "/v1/cache/probe", kWarmPath = "/v1/cache/warm";

// All three functions are of type Serving::Start and accept one prompt. start_probe() and start_warming() use only the prompt of
// `prepared`.
Reply start_probe(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);
Reply start_warming(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);
// Responds with status 412 if more than one block of the prompt would have to be computed.
Reply start_if_cached(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);

}  // namespace quire
