#pragma once
// Reads the fields that request a form of the answer: response_format, structured_outputs, guided_json and similar ones.
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/structured_output.h"
#include "server/request/object_reader.h"

namespace quire {

// Free text in which each `begin` is followed by JSON of the schema and by `end`. `begin` starts with `trigger`, which distinguishes it
// from the text.
struct StructuralTag {
  std::string trigger, begin, schema, end;
};

// The form that an answer must have. Later errors, from the engine's compilation, name `field`.
struct OutputForm {
  StructuredOutput wanted;
  std::string field;                  // the request's field that contains the form
  std::vector<StructuralTag> tags{};  // not empty: `wanted` must be built from these
  bool is_strict = true;              // a JSON schema that cannot be enforced is an error; else its enforceable part applies
  boost::json::object spelling{};     // spelling of JSON, as settings of the grammar library ("x-guidance")
};

// Returns nullopt for free text. Errors go to the reader: two forms in one request, or a type or form that is not supported.
[[nodiscard]] std::optional<OutputForm> read_output_form(ObjectReader& reader);

// Parses vLLM's {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, or its text. Errors name a field within it.
[[nodiscard]] Result<std::vector<StructuralTag>> parse_structural_tag(const boost::json::value& value);

// Translates a grammar in the notation of llama.cpp and XGrammar ("root ::= ...") into llguidance's Lark. Errors name the line.
[[nodiscard]] Result<std::string> lark_of_ebnf(std::string_view text);

}  // namespace quire
