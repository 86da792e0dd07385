#pragma once
// Grammars that hold a model to its own format of calls and to the tools' schemas, in llguidance's variant of Lark.
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
  bool is_required = false;        // else text may come before calls, or instead of them; a call is held to its form once it has begun
  bool parallel = true;            // several calls, where the format has them
  bool in_thought = false;         // the answer goes on with a reasoning part that the prompt has begun
  bool is_behind_thought = false;  // instead: the grammar begins behind that part
  std::string otherwise = {};      // required: what may come instead of calls, a rule's body; empty: nothing
  bool one_spelling = false;       // a value has one spelling; numbers that may have a fraction excepted
  bool behind_mark = false;        // not required: the grammar begins behind the format's mark, which stands there already
  std::function<std::optional<TokenId>(std::string_view mark)> special = {};  // the control token of that text, if it is one
};

// `tools` must not be empty. What such a grammar accepts, AnswerParser reads as calls of these tools. A tool that is not strict is held to
// what llguidance can hold of its schema.
[[nodiscard]] std::string call_grammar(const CallFormat& format, const std::vector<Tool>& tools, const CallGrammarOptions& options);

// Where no tool may be called: what an answer must be, a rule's body, behind what the model may think first.
[[nodiscard]] std::string form_grammar(const CallFormat& format, std::string_view body, const CallGrammarOptions& options);

// A tool's schema as the grammar has it, JSON text: of an object, with JSON's white space as Python writes it, without a client's settings
// for the library.
[[nodiscard]] std::string schema_of_arguments(const Tool& tool, bool one_spelling = false);

}  // namespace quire
