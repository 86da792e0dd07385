#pragma once
// The body of Anthropic's /v1/messages as the chat request that says the same.
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire {

// Takes `body` apart. What it gives is read like a body of /v1/chat/completions; errors here name the fields that the client has sent.
// `counts_only`: for /v1/messages/count_tokens, where max_tokens may be missing. Names of fields that do not change the answer are appended
// to `ignored`.
[[nodiscard]] Result<boost::json::object> chat_of_messages(boost::json::object body, bool counts_only, std::vector<std::string>& ignored);

// An error of that chat, with the names that this API has for its fields.
[[nodiscard]] Error in_words_of_messages(Error error);

}  // namespace quire
