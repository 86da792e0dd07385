#pragma once
// Fields of /v1/messages that the bodies of several tests have.
#include <string>

namespace quire {

inline const std::string kModelAndLimit = R"("model":"m","max_tokens":5,)";
inline const std::string kUserTurn = R"("messages":[{"role":"user","content":"hi"}])";

}  // namespace quire
