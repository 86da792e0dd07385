#pragma once
// Bodies of completions and chats for tests of their fields, and the errors of these bodies.
#include <string>

#include "server/request/completion_request.h"

namespace quire {

inline constexpr RequestLimits kBodyLimits{.max_choices = 8, .vocab_size = 100};

inline Result<CompletionRequest> text_request(const std::string& fields) {
  return parse_completion_request(Api::completion, "{" + fields + "}", kBodyLimits);
}

inline Result<CompletionRequest> chat_request(const std::string& fields) {
  return parse_completion_request(Api::chat, "{" + fields + "}", kBodyLimits);
}

inline std::string request_error(const Result<CompletionRequest>& request) {
  return request ? "accepted" : request.error().to_string();
}

// Returns a JSON list of `count` copies.
inline std::string json_list_of(std::size_t count, const std::string& item) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + item;
  return list + "]";
}

inline std::string quoted_text(std::size_t num_bytes) {
  return '"' + std::string(num_bytes, 'x') + '"';
}

struct BodyCase {
  std::string fields, error;
};

inline const std::string kHiPrompt = R"("prompt": "hi")";
inline const std::string kHiMessage = R"("messages": [{"role": "user", "content": "hi"}])";

}  // namespace quire
