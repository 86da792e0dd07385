#pragma once
#include <optional>
#include <string>

#include "server/answers/answer.h"

namespace quire {

// Returns "routed_experts" in vLLM's format: a base64 NumPy file with an array [token][layer][expert] of the smallest sufficient unsigned
// integer type. Returns nullopt if there are no experts.
[[nodiscard]] std::optional<std::string> routed_experts_text(const ReportedExperts& routed);

}  // namespace quire
