#pragma once
// What a request says of the form of its answer: response_format, structured_outputs, guided_json and its kin.
#include <optional>
#include <string>
#include <string_view>

#include "quire/structured_output.h"
#include "server/object_reader.h"

namespace quire {

struct OutputForm {
  StructuredOutput wanted;
  std::string field;  // which of them said it
};

// nullopt: free text. Errors go to the reader: two of them at once, a type or a form that cannot be held.
[[nodiscard]] std::optional<OutputForm> read_output_form(ObjectReader& reader);

// A grammar in the notation of llama.cpp and XGrammar ("root ::= ...") in llguidance's Lark. Errors name the line.
[[nodiscard]] Result<std::string> lark_of_ebnf(std::string_view text);

}  // namespace quire
