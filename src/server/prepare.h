#pragma once
// From a body to what the engine and the client get: JSON, chat templates and tokens, everything whose cost a client chooses. Any thread.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine.h"
#include "quire/error.h"
#include "quire/server_options.h"
#include "server/api/responses/response_store.h"
#include "server/request/completion_request.h"
#include "server/request/served_model.h"

namespace quire {

struct PreparedCompletion {
  CompletionRequest request;                         // its prompts are taken out
  std::vector<EngineRequest> prompts;                // each with all choices that are drawn of it
  std::vector<std::string> echoes;                   // per choice with `echo`, else empty
  std::vector<std::uint64_t> num_prompt_tokens;      // per prompt
  std::vector<TokenId> first_prompt_tokens{};        // the same
  std::vector<std::vector<TokenId>> told_prompts{};  // the same, with `return_token_ids`, else empty
};

// Each takes the body, and frees it as soon as it is read.
Result<PreparedCompletion> prepare_completion(Api api, std::string body, std::string_view tenant, const ServedModel& model,
                                              const ServerOptions& options);
// More of a session's prompt.
struct PreparedInput {
  std::string tenant, id;
  std::vector<TokenId> tokens;  // may be none
  bool is_last = false;
};
Result<PreparedInput> prepare_input(const std::string& body, const ServedModel& model);

// Of /v1/messages.
Result<PreparedCompletion> prepare_message(std::string body, std::string_view tenant, const ServedModel& model,
                                           const ServerOptions& options);
// Of /v1/responses.
Result<PreparedCompletion> prepare_response(std::string body, std::string_view tenant, ResponseStore& responses, const ServedModel& model,
                                            const ServerOptions& options);
// The bodies of the answers.
Result<std::string> answer_input_tokens(std::string body, std::string_view tenant, ResponseStore& responses, const ServedModel& model,
                                        const ServerOptions& options);
Result<std::string> answer_count_tokens(std::string body, const ServedModel& model, const ServerOptions& options);
Result<std::string> answer_tokenize(std::string body, const ServedModel& model);
Result<std::string> answer_detokenize(std::string body, const ServedModel& model);

}  // namespace quire
