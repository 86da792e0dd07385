#pragma once
// What a request says of the form of its answer: response_format, structured_outputs, guided_json and its kin.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/structured_output.h"
#include "server/request/object_reader.h"

namespace quire {

// Free text in which each `begin` is followed by JSON of the schema and `end`; `trigger`, which `begin` begins with, is what tells it from
// text.
struct StructuralTag {
  std::string trigger, begin, schema, end;
};

// What to hold an answer to. An error that comes later (the engine compiles) is told in the words of `field`.
struct OutputForm {
  StructuredOutput wanted;
  std::string field;                  // which of them said it
  std::vector<StructuralTag> tags{};  // not empty: of these `wanted` is to be made
};

// nullopt: free text. Errors go to the reader: two of them at once, a type or a form that cannot be held.
[[nodiscard]] std::optional<OutputForm> read_output_form(ObjectReader& reader);

// vLLM's {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, or its text. Errors have a field within it.
[[nodiscard]] Result<std::vector<StructuralTag>> parse_structural_tag(const boost::json::value& value);

// A grammar in the notation of llama.cpp and XGrammar ("root ::= ...") in llguidance's Lark. Errors name the line.
[[nodiscard]] Result<std::string> lark_of_ebnf(std::string_view text);

}  // namespace quire
