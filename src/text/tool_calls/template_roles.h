#pragma once
// Detects which messages of a conversation a chat template shows. Some templates reject or silently omit these messages:
// - several instructions (a system prompt, messages of the role "developer", instructions after other messages);
// - several messages of a user in a row;
// - text in a message with tool calls.
#include <boost/json/array.hpp>
#include <string_view>

#include "quire/text/chat_template.h"

namespace quire {

// Which messages a template shows. Detected once per template by rendering short conversations.
struct TemplateRoles {
  bool system = true;           // shows a system message at the beginning
  bool several_systems = true;  // shows several system messages at the beginning
  bool late_system = true;      // shows a system message after other messages
  bool developer = false;       // shows a message of the role "developer" at the beginning
  bool several_users = true;    // shows consecutive messages of the user
  bool calls = true;            // shows the calls of an earlier answer, if the template supports calls
  bool text_arguments = false;  // concatenates calls' arguments to text, so they must be JSON text
  bool parts_text = false;      // omits the text of an answer with calls, but shows the text in a separate message before the calls
};

[[nodiscard]] TemplateRoles find_roles(const ChatTemplate& chat_template, std::string_view source);

// Changes messages to a form that the template shows. The cost is linear in the messages.
// - "developer" becomes "system" if the template does not support "developer".
// - Several instructions at the beginning become one. Later instructions, or all if there is no system role, move to an adjacent message of
//   the user.
// - Consecutive messages of the user become one. The text of an answer with calls becomes a separate message.
void adapt_roles(const TemplateRoles& roles, boost::json::array& messages);

}  // namespace quire
