#pragma once
// Turns a parsed request into the engine's input: chat templates and tokens, all work with a cost that the client controls. Any thread.
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine.h"
#include "server/request/completion_request.h"
#include "server/request/prompt_fingerprint.h"
#include "server/request/request_context.h"

namespace quire {

// A request that is ready to be submitted: all work that depends on the size of the body is done.
struct PreparedCompletion {
  CompletionRequest request;                             // its prompts have been moved out
  std::vector<EngineRequest> prompts;                    // each with all choices that are sampled from it
  std::vector<std::string> echoes;                       // per choice with `echo`, else empty
  std::vector<std::uint64_t> num_prompt_tokens;          // per prompt
  std::vector<TokenId> first_prompt_tokens{};            // per prompt
  std::vector<std::vector<TokenId>> returned_prompts{};  // per prompt with `return_token_ids`, else empty
  std::optional<PromptFingerprint> fingerprint{};        // set with `compare`
};

[[nodiscard]] RequestLimits limits_of(const RequestContext& context);

// Reads the chat that an API has made from its body. `ignored`: names of fields of the body that do not change the answer. Errors use the
// field names of `shape`, which becomes the request's shape.
Result<CompletionRequest> read_chat_of(std::shared_ptr<const AnswerShape> shape, boost::json::object chat,
                                       const std::vector<std::string>& ignored, const RequestContext& context);

// `request` must have a shape. Errors use the field names of that shape.
Result<PreparedCompletion> prepare_completion(CompletionRequest request, const RequestContext& context);

// Returns the number of tokens of a chat's only prompt, even if they do not fit into the context.
Result<std::size_t> count_prompt_tokens(CompletionRequest request, const RequestContext& context);

}  // namespace quire
