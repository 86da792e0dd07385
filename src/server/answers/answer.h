#pragma once
// The parts of an answer, in the form that the answer writers of all APIs receive.
#include <chrono>
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
  std::uint64_t reasoning_tokens = 0;  // part of `completion_tokens`: tokens between the delimiters of reasoning
  // Times since the request was submitted: until its first token, or until now before that token arrives; and until now.
  std::chrono::nanoseconds to_first_token{}, elapsed{};
};

// The stop string or stop token id that ended a choice. Both are absent after EOS or the length limit, except that a beam search sets
// `token` for EOS too.
struct StopCause {
  std::optional<std::string> text;
  std::optional<TokenId> token;
};

// Fields that all parts of an answer share.
struct AnswerHead {
  Api api = Api::completion;
  std::string id;
  std::string model;
  std::int64_t created_s = 0;
  std::vector<std::string> warnings{};
  std::string_view service_tier{};  // empty: not written
};

// Returns the member `warnings` of the answer's JSON with a leading comma, or an empty string if there are no warnings.
[[nodiscard]] std::string warnings_json(const AnswerHead& head);

// A range of bytes in an answer's text: [begin, end).
struct TextSpan {
  std::size_t begin = 0, end = 0;
};

// The experts that each token goes through in a mixture of experts (MoE), as [token][layer][expert].
struct ReportedExperts {
  std::span<const std::uint16_t> experts{};
  ExpertShape shape{};
};

// A whole choice, or the next part of a streamed choice.
struct ChoiceText {
  std::uint32_t index = 0;
  std::string_view text{};
  const std::vector<AnswerPart>* parts = nullptr;           // chat: the parsed parts, in place of `text`; null: the answer is not parsed
  const std::vector<PositionLogprobs>* logprobs = nullptr;  // null: not requested
  const std::vector<TextSpan>* token_spans = nullptr;       // with `parts`: the bytes of text of each token in `logprobs`, possibly none
  std::size_t text_offset = 0;                              // completions: number of characters before the first of `logprobs`
  const std::vector<PositionLogprobs>* prompt = nullptr;    // log probabilities of the prompt, except its first token; null: none
  bool writes_prompt_logprobs = false;                      // writes the field prompt_logprobs, even if `prompt` is null
  std::optional<TokenId> echoed{};                          // set for `echo`: first token of the prompt; `prompt` precedes `logprobs`
  std::uint32_t num_echoed_logprobs = 0;                    // for `echo`: alternatives to write for each token of the prompt
  std::optional<FinishReason> finish{};                     // absent: the choice continues
  bool tokens_as_ids = false;                               // log probabilities name tokens "token_id:ID" (TokenNames)
  bool calls_tools = false;                                 // chat: the answer has tool calls, and all of them are complete
  const std::vector<TokenId>* token_ids = nullptr;          // null: not requested
  const std::vector<TokenId>* prompt_token_ids = nullptr;   // set in the first part of a choice; null: not requested, or already written
  StopCause cause{};
  std::optional<ReportedExperts> routed{};  // absent: not requested
  // Whole answers: location of the blocks that are kept for another server. null: no blocks are kept.
  const KvTransferParams* kv_transfer = nullptr;
};

}  // namespace quire
