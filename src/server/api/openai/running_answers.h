#pragma once
// Calls that change an answer in progress: fork the answer (/v1/requests/{id}/fork), or append to the prompt of a session
// (/v1/requests/{id}/input).
#include <string_view>

#include "server/api/serving.h"

namespace quire {

inline constexpr std::string_view kForkPath = "/v1/requests/*/fork", kInputPath = "/v1/requests/*/input";

// Called on the server's thread.
Reply fork_answer(Serving& serving, HttpRequest& request, const Wake& wake);
Reply append_input(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
