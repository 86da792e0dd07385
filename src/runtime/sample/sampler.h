#pragma once
// Turns rows of logits into tokens. The tokens of a request depend on its own logits, parameters, seed and number of outputs only: never on
// the batch, the slot, or a preemption.
//
// The order is vLLM V1's:
//  - Tokens that the mask forbids are -infinity from the start. Log probabilities are taken of that distribution (with timestamp rules, of
//    the final one).
//  - allowed_token_ids, bad_words, logit_bias and the min_tokens mask; repetition, frequency and presence penalties; the timestamp rules.
//  - The likeliest token if temperature < 1e-5; else temperature, min_p, top_k, top_p and one draw.
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

// The rows to sample from: after the last known token of a request, and after each of its draft tokens.
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

// A row of logits, and the token that came after it.
struct PromptLogprobRow {
  std::span<const float> logits;  // vocab_size
  TokenId token;
  std::uint32_t num_logprobs = 0;  // alternatives besides `token`
};

// Owned by a worker. The thread that leads the step makes one call at a time; within a call, rows run on the pool.
class Sampler {
 public:
  // `eos_ids` are masked under min_tokens. `pool` may be null; it must outlive the sampler.
  Sampler(std::uint32_t vocab_size, std::uint32_t max_num_seqs, std::vector<TokenId> eos_ids, ThreadPool* pool);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Takes the slot for a request, new or resumed, and copies its parameters. Token ids must be below vocab_size.
  void admit(const AdmittedRequest& request);
  void release(Slot slot);

  // Samples tokens into `outcomes`, row after row; `counts` receives the number of tokens per row. Each row gets one token, and the next
  // one as long as the sampled token equals the draft token. A failure after the first token is dropped. The tokens do not depend on the
  // draft tokens. This is exact rejection sampling: a draft token is one guess, accepted with its probability. Each sampled token counts as
  // an output of its slot. No slot occurs twice. Allocates only for log probabilities.
  void sample(std::span<const SampleRow> rows, std::vector<SampleOutcome>& outcomes, std::vector<std::uint32_t>& counts);
  // Writes the log probabilities of known tokens to logprobs[i]; an entry is empty if its row is not finite. Slots do not matter here.
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
