#pragma once
// The error for a request that does not fit into the model's context. Clients recognize its words as a sign to compact: LiteLLM, OpenHands,
// pi and others look for "maximum context length is" and read the numbers. The text is the contract, so this file writes it and reads it.
#include <cstdint>
#include <optional>
#include <string>

#include "quire/base/error.h"

namespace quire {

// The numbers in the error.
struct ContextOverflow {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t answer_tokens = 1;  // requested, or the one token that every answer needs
  std::uint64_t max_model_len = 0;
  bool is_at_least = false;  // prompt_tokens is a lower bound: the prompt was not tokenized to its end
};

// Returns an `invalid_argument` error for `field`, in OpenAI's words.
[[nodiscard]] Error overflow_error(std::string field, const ContextOverflow& overflow);

// Returns the numbers of an error that overflow_error() has made; nullopt for every other error.
[[nodiscard]] std::optional<ContextOverflow> overflow_of(const Error& error);

}  // namespace quire
