#pragma once
// From a request that has been read to what the engine gets: chat templates and tokens, everything whose cost a client chooses. Any thread.
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
#include "server/request/prompt_print.h"
#include "server/request/request_context.h"

namespace quire {

// Ready to be submitted: what depends on the size of the body is done.
struct PreparedCompletion {
  CompletionRequest request;                         // its prompts are taken out
  std::vector<EngineRequest> prompts;                // each with all choices that are drawn of it
  std::vector<std::string> echoes;                   // per choice with `echo`, else empty
  std::vector<std::uint64_t> num_prompt_tokens;      // per prompt
  std::vector<TokenId> first_prompt_tokens{};        // the same
  std::vector<std::vector<TokenId>> told_prompts{};  // the same, with `return_token_ids`, else empty
  std::optional<PromptPrint> print{};                // with `compare`
};

[[nodiscard]] RequestLimits limits_of(const RequestContext& context);

// The chat that an API has made of its body. `ignored`: names of fields of the body that do not change the answer. Errors are in the words
// of `shape`, which the request gets.
Result<CompletionRequest> read_chat_of(std::shared_ptr<const AnswerShape> shape, boost::json::object chat,
                                       const std::vector<std::string>& ignored, const RequestContext& context);

// `request` has a shape, and errors are in its words.
Result<PreparedCompletion> prepare_completion(CompletionRequest request, const RequestContext& context);

// Of the only prompt of a chat.
Result<std::size_t> count_prompt_tokens(CompletionRequest request, const RequestContext& context);

}  // namespace quire
