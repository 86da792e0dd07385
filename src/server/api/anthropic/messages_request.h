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
  bool counts_only = false;  // set for /v1/messages/count_tokens, which does not require max_tokens
  bool is_beta = false;      // sent with an anthropic-beta header, so it may have fields that quire does not know
};

struct ChatOfMessages {
  boost::json::object chat;
  std::vector<ContextEdit> edits;         // not applied yet
  std::optional<std::string> previous{};  // diagnostics.previous_message_id; empty: the field is null (first turn)
};

// Consumes `body`. The returned chat must be read like a body of /v1/chat/completions. Appends to `ignored` the names of fields that do not
// change the answer. Errors name the fields that the client sent.
[[nodiscard]] Result<ChatOfMessages> chat_of_messages(boost::json::object body, MessagesCall call, std::vector<std::string>& ignored);

// Converts an error of the translated chat: renames its fields to the names in the Messages API.
[[nodiscard]] Error with_messages_field_names(Error error);

}  // namespace quire
