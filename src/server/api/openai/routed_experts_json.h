#pragma once
#include <string>

#include "server/answers/answer.h"

namespace quire {

// `,"routed_experts":...` as vLLM writes it: NumPy's file of an array [token][layer][expert] of the smallest unsigned numbers that hold
// them, in base64; null where nothing was computed.
void append_routed_experts(std::string& out, const ToldExperts& told);

}  // namespace quire
