#pragma once
// An answer as every API gets it to tell.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/request.h"
#include "quire/base/sampling.h"
#include "server/request/completion_request.h"
#include "server/request/expert_shape.h"
#include "text/tool_calls/answer_part.h"

namespace quire {

struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t reasoning_tokens = 0;  // of the completion's, between the marks of a thought
};

// What ended a choice, besides its finish reason: nothing (EOS, length), a stop string or a stop token id.
struct StopCause {
  std::optional<std::string> text;
  std::optional<TokenId> token;
};

// What all parts of an answer share.
struct AnswerHead {
  Api api = Api::completion;
  std::string id;
  std::string model;
  std::int64_t created_s = 0;
};

// Bytes of an answer's text.
struct TextSpan {
  std::size_t begin = 0, end = 0;
};

// The experts that tokens have gone through, [token][layer][expert].
struct ToldExperts {
  std::span<const std::uint16_t> experts{};
  ExpertShape shape{};
};

// A choice, or the next part of one.
struct ChoiceText {
  std::uint32_t index = 0;
  std::string_view text{};
  const std::vector<AnswerPart>* parts = nullptr;  // chat: what the answer has been taken apart to, instead of the text; null: is not
  const std::vector<PositionLogprobs>* logprobs = nullptr;  // null: not asked for
  const std::vector<TextSpan>* token_spans = nullptr;       // of `logprobs`, where there are parts: each token's text, or nothing
  std::size_t text_offset = 0;                              // completion logprobs: characters before the first of them
  const std::vector<PositionLogprobs>* prompt = nullptr;    // of its tokens but the first; null: there are none
  bool tells_prompt = false;                                // as prompt_logprobs, null though they may be
  std::optional<TokenId> echoed{};                          // the prompt's first token: `prompt` goes before `logprobs`
  std::uint32_t num_echoed_logprobs = 0;                    // alternatives of each token that is told then
  std::optional<FinishReason> finish{};                     // absent: more follows
  bool tokens_as_ids = false;                               // beside log probabilities (TokenNames)
  bool calls_tools = false;                                 // a chat's answer ends with calls that are whole
  const std::vector<TokenId>* token_ids = nullptr;          // null: not asked for
  const std::vector<TokenId>* prompt_token_ids = nullptr;   // of the first part of a choice; null: not asked for, or told already
  StopCause cause{};
  std::optional<ToldExperts> routed{};            // absent: not asked for
  const KvTransferParams* kv_transfer = nullptr;  // of a whole answer: where its blocks are kept; null: nowhere
};

}  // namespace quire
