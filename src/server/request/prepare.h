#pragma once
// Turns a parsed request into the engine's input with chat templates and tokenization: all work whose cost the client controls.
// Thread-safe.
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

// A request that is ready to be submitted. All work that depends on the size of the body is done.
struct PreparedCompletion {
  CompletionRequest request;                             // its prompts have been moved out
  std::vector<EngineRequest> prompts;                    // one request per prompt, for all its choices
  std::vector<std::string> echoes;                       // one text per choice if `echo` is set, else empty
  std::vector<std::uint64_t> num_prompt_tokens;          // one value per prompt
  std::vector<TokenId> first_prompt_tokens{};            // one token per prompt
  std::vector<std::vector<TokenId>> returned_prompts{};  // one list per prompt if `return_token_ids` is set, else empty
  std::optional<PromptFingerprint> fingerprint{};        // set if `compare` is set
};

// Returns an error for the first ignored field if --strict-fields is set.
[[nodiscard]] Result<void> check_ignored(const std::vector<std::string>& ignored, const ServerOptions& options);

[[nodiscard]] RequestLimits limits_of(const RequestContext& context);

// Reads the chat into which an API has translated its body. `ignored` has the names of fields of the body that do not change the answer.
// `shape` becomes the request's shape, and errors use its field names.
Result<CompletionRequest> read_chat_of(std::shared_ptr<const AnswerShape> shape, boost::json::object chat,
                                       const std::vector<std::string>& ignored, const RequestContext& context);

// Tokenizes the prompts and builds the engine's requests. `request` must have a shape; errors use the shape's field names.
Result<PreparedCompletion> prepare_completion(CompletionRequest request, const RequestContext& context);

// Returns the number of tokens of a chat's prompt, even if they do not fit into the context.
Result<std::size_t> count_prompt_tokens(CompletionRequest request, const RequestContext& context);

}  // namespace quire
