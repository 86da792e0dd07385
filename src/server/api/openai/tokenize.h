#pragma once
// Bodies of /tokenize, /detokenize and /tokenizer_info: vLLM's.
#include <string>

#include "quire/base/error.h"
#include "server/request/served_model.h"

namespace quire {

// Any thread. Each takes the body, and gives that of the answer.
Result<std::string> answer_tokenize(std::string body, const ServedModel& model);
Result<std::string> answer_detokenize(std::string body, const ServedModel& model);

// What a client needs that renders or counts by itself.
[[nodiscard]] std::string tokenizer_info(const ServedModel& model);

}  // namespace quire
