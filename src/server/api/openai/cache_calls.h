#pragma once
// Questions about a prompt and the cache, with the body of a completion or a chat: what it would find (/v1/cache/probe), have it computed
// without an answer (/v1/cache/warm), and completions that start only where it is there ("fail_if_not_cached").
#include <string>
#include <string_view>

#include "server/api/serving.h"

namespace quire {

inline constexpr std::string_view kProbePath = "/v1/cache/probe", kWarmPath = "/v1/cache/warm";

// Of `prepared` only the prompt counts, one; as Serving::Start all three.
Reply start_probe(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);
Reply start_warming(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);
// Answers 412 where more than a block of the prompt would be computed.
Reply start_if_cached(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);

}  // namespace quire
