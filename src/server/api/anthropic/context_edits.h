#pragma once
// Anthropic's context_management: what of a conversation is taken out of its prompt before the model reads it.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quire/base/error.h"
#include "server/request/object_reader.h"

namespace quire {

// clear_thinking_20251015: what was thought in all turns of the assistant but the last ones that thought. A turn is all that it says and
// calls between two messages of the user's own words.
struct ClearThinking {
  std::optional<std::uint64_t> keep = 1;  // turns; nullopt: all of them
};

// clear_tool_uses_20250919: results of all but the last calls, and, if asked for, their arguments.
struct ClearToolUses {
  std::uint64_t trigger = 100'000;    // more of them, and it begins
  bool counts_tools = false;          // of the trigger: calls instead of the prompt's tokens
  std::uint64_t keep = 3;             // calls
  std::uint64_t clear_at_least = 0;   // tokens; else nothing is cleared
  std::vector<std::string> excluded;  // tools
  bool clears_inputs = false;
  std::vector<std::string> inputs_of;  // only of these tools; none: of all
};

using ContextEdit = std::variant<ClearThinking, ClearToolUses>;

// {"edits": [...]}; errors go to the reader, and so do the names of kinds that are not known here.
[[nodiscard]] std::vector<ContextEdit> read_context_edits(ObjectReader& reader, boost::json::value& management);

// How many tokens the prompt of a chat has.
using CountChat = std::function<Result<std::size_t>(const boost::json::object& chat)>;

// Takes them out of the messages of a chat (messages_request.h), in order. `count` is asked only where an edit depends on it and the chat
// is long enough. Errors: those of `count`.
[[nodiscard]] Result<void> apply_context_edits(const std::vector<ContextEdit>& edits, boost::json::object& chat, const CountChat& count);

}  // namespace quire
