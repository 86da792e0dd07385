#pragma once
// Reads the fields that request a form of the answer: response_format, structured_outputs, guided_json and others.
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/structured_output.h"
#include "server/request/object_reader.h"

namespace quire {

// A part of an answer that is otherwise free text: `begin`, JSON of the schema, and `end`. `begin` starts with `trigger`, which
// distinguishes it from the free text.
struct StructuralTag {
  std::string trigger, begin, schema, end;
};

// The form that an answer must have. Errors of the engine's grammar compilation name `field`.
struct OutputForm {
  StructuredOutput wanted;
  std::string field;                  // the request's field with the form
  std::vector<StructuralTag> tags{};  // if not empty, `wanted` must be built from these tags
  bool is_strict = true;              // true: a JSON schema that cannot be enforced is an error; false: its enforceable part is used
  boost::json::object spelling{};     // settings of the grammar library for the spelling of JSON ("x-guidance")
};

// Returns nullopt if the answer is free text. Reports errors to the reader: two forms in one request, or a form that is not supported.
[[nodiscard]] std::optional<OutputForm> read_output_form(ObjectReader& reader);

// Parses vLLM's {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, or its JSON text. Errors name a field within the value.
[[nodiscard]] Result<std::vector<StructuralTag>> parse_structural_tag(const boost::json::value& value);

// Translates a grammar in the notation of llama.cpp and XGrammar ("root ::= ...") into llguidance's Lark. Errors name the line.
[[nodiscard]] Result<std::string> lark_of_ebnf(std::string_view text);

}  // namespace quire
