#pragma once
// Bodies of /tokenize, /detokenize and /tokenizer_info, as in vLLM.
#include <string>

#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "server/request/served_model.h"

namespace quire {

// Each function takes the body of a request and returns the body of its answer. Called on any thread.
Result<std::string> answer_tokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation = nullptr);
Result<std::string> answer_detokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation = nullptr);

// Returns data for clients that render templates or count tokens themselves.
[[nodiscard]] std::string tokenizer_info(const ServedModel& model);

}  // namespace quire
