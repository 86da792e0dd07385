#pragma once
// Answers /tokenize, /detokenize and /tokenizer_info as vLLM does. /tokenize also reads llama.cpp's body, and answers in its form.
#include <string>

#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "server/request/served_model.h"

namespace quire {

// Parse the body of a request and return the body of the response. Called on any thread.
Result<std::string> answer_tokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation = nullptr);
Result<std::string> answer_detokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation = nullptr);

// Returns the chat template and tokenizer data, for clients that render templates or count tokens themselves.
[[nodiscard]] std::string tokenizer_info(const ServedModel& model);

}  // namespace quire
