#pragma once
// Builds grammars that restrict a model to its format of calls and to the tools' schemas, in llguidance's variant of Lark.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/tool.h"

namespace quire {

struct CallGrammarOptions {
  bool is_required = false;         // the answer must be calls; otherwise text may come before, after or instead of calls and may
                                    // mention delimiters: a call is then restricted once the text after its delimiter can only be a call
  bool parallel = true;             // allows several calls, if the format supports it
  bool in_reasoning = false;        // the answer continues a reasoning part that the prompt began
  bool is_after_reasoning = false;  // instead of in_reasoning: the grammar begins after that part
  std::string otherwise = {};       // with is_required: a rule's body for what may replace calls; empty: nothing
  bool is_canonical = false;        // each value has one spelling, except numbers that may have a fraction
  bool is_after_delimiter = false;  // without is_required: the grammar begins after the opening delimiter, already written
  // Returns the token that always encodes a delimiter, if there is one.
  std::function<std::optional<TokenId>(std::string_view delimiter)> token = {};
};

// Returns the grammar for an answer that may call `tools`, which must not be empty. AnswerParser reads each call that the grammar accepts
// as a call of one of these tools. For a tool that is not strict, the grammar enforces as much of its schema as llguidance can.
[[nodiscard]] std::string call_grammar(const CallFormat& format, const std::vector<Tool>& tools, const CallGrammarOptions& options);

// Returns the grammar for an answer without calls: `body`, a rule's body, after optional reasoning.
[[nodiscard]] std::string form_grammar(const CallFormat& format, std::string_view body, const CallGrammarOptions& options);

// Returns a tool's schema as the grammar contains it, as JSON text. The schema is that of an object, and the server's settings for
// llguidance replace the client's. A tool without parameters has an empty one.
[[nodiscard]] std::string schema_of_arguments(const Tool& tool, bool is_canonical = false);

// Returns the parameters of a tool that accepts any object.
[[nodiscard]] boost::json::value any_arguments();

}  // namespace quire
