#pragma once
// Checks a server before the load, with three short requests.
#include <functional>
#include <string>

#include "quire/base/error.h"
#include "traffic/prompts.h"
#include "traffic/target.h"

namespace quire {

// Returns `model`, or if it is empty the first model that the server lists. Errors: no server answers, or it is no OpenAI server (field
// --url); it refuses the key (field --api-key); it lists no model (field --served-model).
Result<std::string> find_served_model(Target& target, const std::string& model, double timeout_s);

// Sends two prompts of different lengths, to check that the server streams answers to the run's requests, and to measure how many tokens a
// word has. `path` is the path of the API; `body` returns the body of a prompt of `num_words` words. Without usage in the answers, a word
// is taken as one token. Errors name --url, and have the server's message.
Result<WordScale> measure_words(Target& target, const std::string& path, const std::function<std::string(std::uint32_t num_words)>& body,
                                double timeout_s);

}  // namespace quire
