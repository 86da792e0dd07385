#pragma once
// How the next token is chosen. Field names and ranges are those of the OpenAI API and of vLLM's SamplingParams.
// Values, copied with the request; a plan points to the engine's copy. validate() has no state: any thread.
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/pooling.h"

namespace quire {

// Output that repeats a pattern of min..max_pattern_tokens tokens at least min_count times is stopped (vLLM: repetition_detection).
// min_count < 2 or max 0: off.
struct RepetitionDetection {
  std::int32_t min_pattern_tokens = 0;
  std::int32_t max_pattern_tokens = 0;
  std::int32_t min_count = 0;

  friend bool operator==(const RepetitionDetection&, const RepetitionDetection&) = default;
};

// Of a model that writes times beside its text, as Whisper does: tokens from first_time on are times, each a step later than the one before
// it. A text begins and ends with one, times do not fall, and what is likelier to be a time than any one word is a time (openai-whisper's
// ApplyTimestampRules). Off where first_time is 0.
struct TimestampRules {
  TokenId first_time = 0;
  TokenId end = 0;                   // below first_time: ends the answer, and is as little a word as a time is
  std::uint32_t max_first = 0;       // steps that the first time may be late, at most
  bool has_times = true;             // else none is drawn
  std::vector<TokenId> not_first{};  // tokens that no text begins with
  // Before the text: the i-th output is the likeliest of the i-th of these, none of which is empty.
  std::vector<std::vector<TokenId>> begins{};

  friend bool operator==(const TimestampRules&, const TimestampRules&) = default;
};

struct QUIRE_API SamplingParams {
  float temperature = 1.0F;         // 0 is greedy; [0, 2]
  float top_p = 1.0F;               // (0, 1]
  std::int32_t top_k = 0;           // 0 is off
  float min_p = 0.0F;               // [0, 1], relative to the likeliest token
  float repetition_penalty = 1.0F;  // > 0; over prompt and output
  float presence_penalty = 0.0F;    // [-2, 2]; over output
  float frequency_penalty = 0.0F;   // [-2, 2]; over output
  // The same seed, prompt and parameters give the same tokens, whatever runs beside. Absent: drawn from the engine's seed and the request's
  // id.
  std::optional<std::uint64_t> seed;
  std::optional<std::uint32_t> logprobs;  // number of alternatives beside the sampled token, at most 20
  // The same beside each token of the prompt but the first. Such a request reads no prefix cache: all of its prompt is computed.
  std::optional<std::uint32_t> prompt_logprobs;
  // The experts that each token goes through are told (RequestOutput::prompt_experts, routed_experts). Such a request reads no prefix
  // cache, either.
  bool routed_experts = false;
  // Added to the logit of each token, before temperature and filters.
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;         // EOS and stop ids are masked before this many outputs
  std::vector<TokenId> stop_token_ids;  // besides the model's EOS ids
  bool ignore_eos = false;
  std::vector<TokenId> allowed_token_ids{};       // no others are drawn; empty: all
  std::vector<std::vector<TokenId>> bad_words{};  // behind all but the last token of one, as outputs, the last is not drawn; none is empty
  TimestampRules timestamps{};
  RepetitionDetection repetition{};  // 0 <= min_pattern_tokens <= max_pattern_tokens <= 256; min_count 2 to 1024 where it is on
  PoolingParams pooling{};           // of a request that draws no tokens (EngineRequest::pooling)

  // Every field in its range, or an error that names the field.
  [[nodiscard]] Result<void> validate() const;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;    // natural logarithm, of the raw model distribution (before temperature and filters)
  std::uint32_t rank = 0;  // 1 is the likeliest
};

// The sampled token (or that of the prompt) first, then the likeliest ones in order.
struct PositionLogprobs {
  std::vector<TokenLogprob> entries;
};

}  // namespace quire
