#pragma once
// Describes the model and the running requests as llama.cpp's server does.
#include <string>

#include "server/api/serving.h"

namespace quire {

// Return the bodies of the answers of GET /props and GET /slots. A slot is a row of the batch; a request has one slot while it is in
// progress, even if it has several choices.
[[nodiscard]] std::string props_body(Serving& serving);
[[nodiscard]] std::string slots_body(Serving& serving);
// Returns whether each slot has a request.
[[nodiscard]] bool are_slots_taken(Serving& serving);

}  // namespace quire
