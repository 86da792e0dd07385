#pragma once
// Builds grammars that restrict a model to its format of calls and to the tools' schemas, in llguidance's dialect of Lark.
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
  bool is_required = false;         // true: the answer must be calls; false: text may come before, after or instead of calls, and
                                    // may contain delimiters. A call is then restricted as soon as its text can only be a call
  bool parallel = true;             // allows several calls, if the format supports it
  bool in_reasoning = false;        // the answer continues a reasoning part that the prompt began
  bool is_after_reasoning = false;  // instead of in_reasoning: the grammar begins after that part
  std::string otherwise = {};       // with is_required: the rule body of an allowed answer without calls; empty: none is allowed
  bool is_canonical = false;        // each value has only one spelling, except numbers that may have a fraction
  bool is_after_delimiter = false;  // without is_required: the opening delimiter was already written, and the grammar begins after it
  // Returns the token that always encodes a delimiter, or nullopt if no such token exists.
  std::function<std::optional<TokenId>(std::string_view delimiter)> token = {};
};

// Returns the grammar for an answer that may call `tools`, which must not be empty. AnswerParser reads each call that the grammar accepts
// as a call of one of these tools. For a tool that is not strict, the grammar enforces the part of the schema that llguidance supports.
[[nodiscard]] std::string call_grammar(const CallFormat& format, const std::vector<Tool>& tools, const CallGrammarOptions& options);

// Returns the grammar for an answer without calls: optional reasoning, then text that matches the rule body `body`.
[[nodiscard]] std::string form_grammar(const CallFormat& format, std::string_view body, const CallGrammarOptions& options);

// Returns the JSON text of a tool's schema as it is put into the grammar. The schema describes an object, and the server's settings for
// llguidance replace the client's settings. For a tool without parameters, the object must be empty.
[[nodiscard]] std::string schema_of_arguments(const Tool& tool, bool is_canonical = false);

// Returns the schema of a tool whose arguments may be any object.
[[nodiscard]] boost::json::value any_arguments();

}  // namespace quire
