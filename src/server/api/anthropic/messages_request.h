#pragma once
// Translates the body of Anthropic's /v1/messages into the equivalent chat request.
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "server/api/anthropic/context_edits.h"

namespace quire {

struct MessagesCall {
  bool counts_only = false;  // for /v1/messages/count_tokens, which does not require max_tokens
  bool is_beta = false;      // sent with an anthropic-beta header: it may have fields that are unknown here
};

struct ChatOfMessages {
  boost::json::object chat;
  std::vector<ContextEdit> edits;         // not applied yet
  std::optional<std::string> previous{};  // diagnostics.previous_message_id; empty: null, for the first turn
};

// Consumes `body`. The chat is read like a body of /v1/chat/completions; errors name the fields that the client sent. Names of fields that
// do not change the answer are appended to `ignored`.
[[nodiscard]] Result<ChatOfMessages> chat_of_messages(boost::json::object body, MessagesCall call, std::vector<std::string>& ignored);

// Converts an error of that chat: its fields get the names that this API uses.
[[nodiscard]] Error with_messages_field_names(Error error);

}  // namespace quire
