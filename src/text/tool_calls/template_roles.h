#pragma once
// Finds out which messages of a conversation a chat template shows. Some templates reject these messages, or silently omit them:
// - several instructions (a system prompt, messages of the role "developer", some in the middle);
// - several messages of a user in a row;
// - text next to tool calls.
#include <boost/json/array.hpp>
#include <string_view>

#include "quire/text/chat_template.h"

namespace quire {

// The messages that a template shows, found once per template by rendering small conversations.
struct TemplateRoles {
  bool system = true;           // it shows a system message at the beginning
  bool several_systems = true;  // it shows several system messages there
  bool late_system = true;      // it shows a system message after other messages
  bool developer = false;       // it shows a message of the role "developer" at the beginning
  bool several_users = true;    // it shows consecutive messages of the user
  bool calls = true;            // it shows the calls of an earlier answer, if it supports calls
  bool text_arguments = false;  // it concatenates calls' arguments to text, so they must be JSON text
  bool parts_text = false;      // it omits the text of an answer with calls, but shows it in a message before that answer
};

[[nodiscard]] TemplateRoles find_roles(const ChatTemplate& chat_template, std::string_view source);

// Changes messages to the form that the template shows. The cost is linear in the messages.
// - "developer" becomes "system" if the template does not support it.
// - Several instructions at the beginning become one. Later ones, or all without a system role, move to an adjacent message of the user.
// - Consecutive messages of the user become one. The text of an answer with calls becomes a separate message.
void adapt_roles(const TemplateRoles& roles, boost::json::array& messages);

}  // namespace quire
