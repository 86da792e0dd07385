#pragma once
// Sampling parameters, which control how the next token is chosen. Field names and ranges are as in the OpenAI API and in vLLM's
// SamplingParams. The parameters are values that are copied with the request; a plan points to the engine's copy. validate() has no state
// and may be called on any thread.
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/pooling.h"

namespace quire {

// Stops output that repeats a pattern of min..max_pattern_tokens tokens at least min_count times (vLLM: repetition_detection). Off if
// min_count < 2 or max_pattern_tokens is 0.
struct RepetitionDetection {
  std::int32_t min_pattern_tokens = 0;
  std::int32_t max_pattern_tokens = 0;
  std::int32_t min_count = 0;

  friend bool operator==(const RepetitionDetection&, const RepetitionDetection&) = default;
};

// Rules for models that write timestamps with their text, such as Whisper (openai-whisper's ApplyTimestampRules). Off if first_time is 0.
// Tokens from first_time on are timestamps; each is one step later than the token before it. A text begins and ends with a timestamp, and
// timestamps never decrease. If all timestamps together are more probable than the most probable text token, a timestamp is sampled.
struct TimestampRules {
  TokenId first_time = 0;
  TokenId end = 0;                   // token that ends the answer; below first_time, and neither text nor a timestamp
  std::uint32_t max_first = 0;       // latest first timestamp, in steps
  bool has_timestamps = true;        // false: no timestamp is sampled
  std::vector<TokenId> not_first{};  // tokens that never begin a text
  // Allowed outputs before the text: the i-th output is the most probable token of begins[i]. No entry is empty.
  std::vector<std::vector<TokenId>> begins{};

  friend bool operator==(const TimestampRules&, const TimestampRules&) = default;
};

// The sampling parameters of one request.
struct QUIRE_API SamplingParams {
  float temperature = 1.0F;         // 0 is greedy; [0, 2]
  float top_p = 1.0F;               // (0, 1]
  std::int32_t top_k = 0;           // 0 is off
  float min_p = 0.0F;               // [0, 1], relative to the probability of the most probable token
  float repetition_penalty = 1.0F;  // > 0; over prompt and output
  float presence_penalty = 0.0F;    // [-2, 2]; over output
  float frequency_penalty = 0.0F;   // [-2, 2]; over output
  // Seed of the request. Equal seed, prompt and parameters give equal tokens, whatever other requests run. nullopt: the seed is made from
  // the engine's seed and the request's id.
  std::optional<std::uint64_t> seed;
  std::optional<std::uint32_t> logprobs;  // number of alternatives to the sampled token, at most 20
  // Number of alternatives to each prompt token except the first. A request with this field reads nothing from the prefix cache: its whole
  // prompt is computed.
  std::optional<std::uint32_t> prompt_logprobs;
  // Reports the MoE experts that compute each token (RequestOutput::prompt_experts, routed_experts). A request with this field reads
  // nothing from the prefix cache.
  bool routed_experts = false;
  // Values that are added to the logits of tokens before temperature and filters.
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;         // EOS and stop ids are masked until the answer has this many tokens
  std::vector<TokenId> stop_token_ids;  // in addition to the model's EOS ids
  bool ignore_eos = false;
  std::vector<TokenId> allowed_token_ids{};       // only these tokens are sampled; empty: all tokens
  std::vector<std::vector<TokenId>> bad_words{};  // sequences of output tokens that are never completed; none is empty
  TimestampRules timestamps{};
  RepetitionDetection repetition{};  // 0 <= min_pattern_tokens <= max_pattern_tokens <= 256; min_count 2 to 1024 if it is on
  PoolingParams pooling{};           // for a request that samples no tokens (EngineRequest::pooling)

  // Returns an error that names the field, if a field is out of range.
  [[nodiscard]] Result<void> validate() const;
};

// The log probability of one token.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;    // natural logarithm, of the raw model distribution (before temperature and filters)
  std::uint32_t rank = 0;  // 1: the most probable token
};

// Log probabilities at one position: first the sampled token (or the prompt's token), then the most probable tokens in order.
struct PositionLogprobs {
  std::vector<TokenLogprob> entries;
};

}  // namespace quire
