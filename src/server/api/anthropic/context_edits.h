#pragma once
// Anthropic's context_management: removes parts of a conversation from the prompt before the model reads it.
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

// clear_thinking_20251015: removes the reasoning of all assistant turns except the last `keep` turns that have reasoning. A turn is
// everything that the assistant writes and calls between two messages of the user.
struct ClearThinking {
  std::optional<std::uint64_t> keep = 1;  // number of turns that keep their reasoning; nullopt: all
};

// clear_tool_uses_20250919: removes the results of all tool calls except the last `keep` and, if requested, the arguments of the same
// calls.
struct ClearToolUses {
  std::uint64_t trigger = 100'000;    // the edit applies above this number
  bool counts_tools = false;          // true: `trigger` counts tool calls; false: prompt tokens
  std::uint64_t keep = 3;             // number of last calls that keep their results
  std::uint64_t clear_at_least = 0;   // tokens; if the edit would remove fewer, it removes nothing
  std::vector<std::string> excluded;  // tools that keep their results
  bool clears_inputs = false;
  std::vector<std::string> inputs_of;  // tools whose arguments are removed; empty: all
};

using ContextEdit = std::variant<ClearThinking, ClearToolUses>;

// Reads {"edits": [...]}. Reports errors and the names of unknown edits to the reader.
[[nodiscard]] std::vector<ContextEdit> read_context_edits(ObjectReader& reader, boost::json::value& management);

// Returns the number of tokens in the prompt of a chat, or a lower bound if the prompt is too long.
using CountChat = std::function<Result<std::size_t>(const boost::json::object& chat)>;

// Applies the edits in order to the messages of a chat (messages_request.h). Calls `count` only if an edit depends on the number of tokens
// and the chat is long enough. Errors: the errors of `count`.
[[nodiscard]] Result<void> apply_context_edits(const std::vector<ContextEdit>& edits, boost::json::object& chat, const CountChat& count);

}  // namespace quire
