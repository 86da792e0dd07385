#pragma once
#include <string>

#include "server/answers/answer.h"

namespace quire {

// Appends `,"routed_experts":...` in vLLM's form: a NumPy file in base64, with an array [token][layer][expert] of the smallest sufficient
// unsigned integers. null if there are no experts.
void append_routed_experts(std::string& out, const ReportedExperts& routed);

}  // namespace quire
