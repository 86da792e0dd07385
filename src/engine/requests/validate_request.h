#pragma once
// The border: what a request must be before it reaches the core.
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"

namespace quire {

// Checks the request against resolved options and clips max_tokens to the remaining context. Errors name the field.
Result<void> validate_request(EngineRequest& request, const EngineOptions& options, std::uint32_t vocab_size);

// kv_transfer_params, for a server of this role.
Result<void> validate_transfer(const EngineRequest& request, KvRole role);

// Of a session's input.
Result<void> validate_tokens(const std::vector<TokenId>& tokens, std::uint32_t vocab_size);

// What a pooling request ends with has at most kMaxPooledNumbers.
Result<void> validate_rows(const EngineRequest& request, std::uint32_t hidden_size);

// What a model with an encoder reads besides the prompt, and no other does.
Result<void> validate_encoder_input(const EngineRequest& request, const ModelInfo& model);

// Of requests that are made at once.
Result<void> validate_count(std::uint32_t n);

}  // namespace quire
