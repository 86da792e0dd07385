#pragma once
// The error for a request that does not fit into the model's context. Clients such as LiteLLM, OpenHands and pi recognize it by the words
// "maximum context length is" and read its numbers to compact the conversation. The text is therefore an interface, and this file both
// writes and parses it.
#include <cstdint>
#include <optional>
#include <string>

#include "quire/base/error.h"

namespace quire {

// The numbers in the error.
struct ContextOverflow {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t answer_tokens = 1;  // requested number, or 1, which every answer needs
  std::uint64_t max_model_len = 0;
  bool is_at_least = false;  // prompt_tokens is a lower bound: the prompt was not tokenized to its end
};

// Returns an `invalid_argument` error for `field`, in the words of OpenAI's API.
[[nodiscard]] Error overflow_error(std::string field, const ContextOverflow& overflow);

// Returns the numbers in an error of overflow_error(); nullopt for every other error.
[[nodiscard]] std::optional<ContextOverflow> overflow_of(const Error& error);

}  // namespace quire
