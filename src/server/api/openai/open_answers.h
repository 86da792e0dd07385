#pragma once
// Calls that are about an answer under way: it is forked (/v1/requests/{id}/fork), or a session gets more of its prompt
// (/v1/requests/{id}/input).
#include <string_view>

#include "server/api/serving.h"

namespace quire {

inline constexpr std::string_view kForkPath = "/v1/requests/*/fork", kInputPath = "/v1/requests/*/input";

// Server's thread.
Reply fork_answer(Serving& serving, HttpRequest& request, const Wake& wake);
Reply append_input(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
