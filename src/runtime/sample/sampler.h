#pragma once
// Samples tokens from rows of logits. The tokens of a request depend only on its logits, parameters, seed and number of outputs, not on the
// batch, the slot, or a preemption.
//
// The steps are applied in the order of vLLM V1:
//  - The mask sets forbidden tokens to -infinity. Log probabilities belong to this distribution; with timestamp rules, to the final
//    distribution.
//  - allowed_token_ids, bad_words, logit_bias and the min_tokens mask; repetition, frequency and presence penalties; the timestamp rules.
//  - If temperature < 1e-5, the likeliest token is chosen. Otherwise temperature, min_p, top_k and top_p are applied, and a token is drawn.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/plan.h"
#include "quire/base/sampling.h"

namespace quire {

class ThreadPool;

inline constexpr float kGreedyTemperature = 1e-5F;

// The rows to sample from for one request: the row after its last known token, and the row after each of its draft tokens.
struct SampleRow {
  Slot slot;
  std::span<const float> logits;                // [1 + drafts][vocab_size]
  std::span<const std::uint32_t> allowed = {};  // [1 + drafts][words]: token t if bit t % 32 of word t / 32 is set; empty: all
  std::span<const TokenId> drafts = {};
};

struct SampleOutcome {
  enum class Status : std::uint8_t { ok, not_finite, all_masked };
  Status status = Status::ok;
  TokenId token = 0;          // 0 unless ok
  PositionLogprobs logprobs;  // empty unless requested
};

// A row of logits, and the known token that follows the row.
struct PromptLogprobRow {
  std::span<const float> logits;  // vocab_size
  TokenId token;
  std::uint32_t num_logprobs = 0;  // alternatives besides `token`
};

// Owned by a worker. The thread that leads the step makes one call at a time; within a call, the pool's threads share the rows.
class Sampler {
 public:
  // `eos_ids` are masked until min_tokens is reached. `pool` may be null; it must outlive the sampler.
  Sampler(std::uint32_t vocab_size, std::uint32_t max_num_seqs, std::vector<TokenId> eos_ids, ThreadPool* pool);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Initializes the slot for a new or resumed request and copies its parameters. Token ids must be below vocab_size.
  void admit(const AdmittedRequest& request);
  void release(Slot slot);

  // Samples tokens into `outcomes`, one request after the other; `counts` receives the number of tokens per request. Each request gets one
  // token, and a further token as long as the last sampled token equals the draft token. A failure after the first token is dropped. The
  // tokens do not depend on the draft tokens: this is exact rejection sampling, which accepts a draft token with its probability. Each
  // sampled token counts as an output of its slot. Each slot may occur once. Allocates memory only for log probabilities.
  void sample(std::span<const SampleRow> rows, std::vector<SampleOutcome>& outcomes, std::vector<std::uint32_t>& counts);
  // Writes the log probabilities of known tokens to logprobs[i]; the entry is empty if its row is not finite. Does not depend on the state
  // of slots.
  void score(std::span<const PromptLogprobRow> rows, std::span<PositionLogprobs> logprobs);

 private:
  struct SlotState;
  struct Scratch;
  template <class Body>
  void for_rows(std::size_t count, Body body);  // body(row, scratch)
  std::uint32_t sample_row(const SampleRow& row, std::span<SampleOutcome> outcomes, Scratch& scratch);
  void sample_one(const SampleRow& row, SampleOutcome& outcome, Scratch& scratch);
  static void record_output(SlotState& state, TokenId token);
  void score_row(const PromptLogprobRow& row, PositionLogprobs& logprobs, Scratch& scratch) const;
  std::span<const float> masked(const SampleRow& row, Scratch& scratch) const;
  std::span<const float> adjusted(const SlotState& state, std::span<const float> logits, Scratch& scratch) const;

  std::uint32_t vocab_size_;
  std::vector<TokenId> eos_ids_;
  ThreadPool* pool_;
  std::vector<SlotState> slots_;
  std::vector<Scratch> scratch_;               // one per thread
  std::vector<std::uint32_t> first_outcomes_;  // index of the first outcome of each row
};

}  // namespace quire
