#pragma once
// What every API tells of an answer besides its text.
#include <cstdint>
#include <optional>
#include <string>

#include "quire/ids.h"
#include "server/request/completion_request.h"

namespace quire {

struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t reasoning_tokens = 0;  // of the completion's, between the marks of a thought
};

// What ended a choice, besides its finish reason: nothing (EOS, length), a stop string or a stop token id.
struct StopCause {
  std::optional<std::string> text;
  std::optional<TokenId> token;
};

// What all parts of an answer share.
struct AnswerHead {
  Api api = Api::completion;
  std::string id;
  std::string model;
  std::int64_t created_s = 0;
  std::string hidden_states_path{};  // empty: none were asked for
};

}  // namespace quire
