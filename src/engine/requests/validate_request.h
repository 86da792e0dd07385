#pragma once
// Validates requests before they reach the core.
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"

namespace quire {

// Checks the request against resolved options, and reduces max_tokens to the remaining context. Errors name the field.
Result<void> validate_request(EngineRequest& request, const EngineOptions& options, std::uint32_t vocab_size);

// Checks that kv_transfer_params are allowed on a server with this role.
Result<void> validate_transfer(const EngineRequest& request, KvRole role);

// Checks that the tokens of a session's input are in the vocabulary.
Result<void> validate_tokens(const std::vector<TokenId>& tokens, std::uint32_t vocab_size);

// Checks that a pooling request returns at most kMaxPooledValues numbers.
Result<void> validate_rows(const EngineRequest& request, std::uint32_t hidden_size);

// Checks that the model has an output matrix, if the request needs tokens or logits.
Result<void> validate_output(const EngineRequest& request, const ModelInfo& model);

// Checks the encoder input: models with an encoder require one, and other models accept none.
Result<void> validate_encoder_input(const EngineRequest& request, const ModelInfo& model);

// Checks the number of requests that a call creates.
Result<void> validate_count(std::uint32_t n);

}  // namespace quire
