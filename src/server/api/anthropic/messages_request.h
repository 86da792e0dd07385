#pragma once
// The body of Anthropic's /v1/messages as the chat request that says the same.
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "server/api/anthropic/context_edits.h"

namespace quire {

struct MessagesCall {
  bool counts_only = false;  // for /v1/messages/count_tokens, where max_tokens may be missing
  bool is_beta = false;      // sent with an anthropic-beta header: it may have fields that nobody here knows
};

struct ChatOfMessages {
  boost::json::object chat;
  std::vector<ContextEdit> edits;         // still to be applied
  std::optional<std::string> previous{};  // diagnostics.previous_message_id; empty: null, for the first turn
};

// Takes `body` apart. The chat is read like a body of /v1/chat/completions; errors here name the fields that the client has sent. Names of
// fields that do not change the answer are appended to `ignored`.
[[nodiscard]] Result<ChatOfMessages> chat_of_messages(boost::json::object body, MessagesCall call, std::vector<std::string>& ignored);

// An error of that chat, with the names that this API has for its fields.
[[nodiscard]] Error in_words_of_messages(Error error);

}  // namespace quire
