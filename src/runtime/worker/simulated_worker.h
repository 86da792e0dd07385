#pragma once
// A worker without a model, for tests and simulations. The next token is a function of the history. For each position and cache group, the
// KV cache holds a hash of the whole history up to that position. A plan that reads a position which was not written for this history ends
// the program. A plan that loses or repeats a token changes the output.
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/manual_clock.h"
#include "quire/base/ids.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/transport/transfer_runner.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/pooler.h"
#include "runtime/worker/step_task.h"
#include "runtime/worker/step_time_model.h"
#include "runtime/worker/worker.h"

namespace quire {

struct SimulatedWorkerOptions {
  WorkerLimits limits;
  std::uint32_t block_size = 16;
  std::uint32_t num_blocks = 0;  // including the null block
  std::uint32_t vocab_size = 0;
  // A row after this token is reported as not finite, as if the model had returned NaN; -1: never.
  TokenId poison = -1;
  // A row that attends to a block with wrong content does not end the program: it samples a wrong token or none, and writes wrong content
  // to its blocks. For tests of failed loads.
  bool tolerates_garbage = false;
  // Called before each step on the thread that runs the step; may be empty.
  std::function<void(const StepPlan&)> before_step = {};
  // Returns the next token after a history, in place of simulated_token(). The token must depend only on the history. Called on the thread
  // that runs the step. Not used for log probabilities and draft tokens.
  std::function<TokenId(std::span<const TokenId> history)> next_token = {};
  std::uint32_t num_spec_tokens = 0;          // draft tokens per step and request; one in four is wrong
  std::uint32_t num_threads = 1;              // 1: a step runs in finish(); 2: on a separate thread
  std::vector<std::uint32_t> windows = {};    // tokens, by cache group; 0: no window; empty: one group without a window
  std::shared_ptr<Transport> transport = {};  // may be null
  // Virtual time, which each step advances by `step_time`; null: real time.
  std::shared_ptr<ManualClock> clock = {};
  StepTimeModel step_time = {};
};

// Returns the token that the simulated model predicts after this history.
TokenId simulated_token(std::span<const TokenId> history, std::uint32_t vocab_size);
// Returns the first token that the mask (TokenMask; empty: no mask) allows, in cyclic order from the token without a mask. Returns -1 if
// the mask allows no token.
TokenId simulated_token(std::span<const TokenId> history, std::uint32_t vocab_size, std::span<const std::uint32_t> allowed);
// Returns `count` draft tokens; one in four differs from the next tokens.
std::vector<TokenId> simulated_drafts(std::span<const TokenId> history, std::uint32_t vocab_size, std::uint32_t count);
// Returns the `count` likeliest tokens; with a mask, the likeliest allowed tokens. Many tokens are equally likely.
std::vector<TokenLogprob> simulated_top_logprobs(std::span<const TokenId> history, std::uint32_t vocab_size, std::uint32_t count,
                                                 std::span<const std::uint32_t> allowed = {});
// Returns the log probabilities of `token` and of the `count` likeliest tokens after this history.
PositionLogprobs simulated_logprobs(std::span<const TokenId> history, std::uint32_t vocab_size, TokenId token, std::uint32_t count);
// Returns the hidden row after this history.
inline constexpr std::uint32_t kSimulatedWidth = 4;
std::array<float, kSimulatedWidth> simulated_hidden(std::span<const TokenId> history);
// Returns the experts of the last token of this history, for a single layer.
inline constexpr std::uint32_t kSimulatedExperts = 2;
std::array<std::uint16_t, kSimulatedExperts> simulated_experts(std::span<const TokenId> history);
// Returns the result of a pooling request with this prompt.
std::vector<float> simulated_pooled(std::span<const TokenId> prompt, const PoolingParams& params);

// Implements the interface of Worker, including transfers, so that engine, core and tiers can be tested without a model.
class SimulatedWorker : public WorkerBase, private StepStages, private PooledRows {
 public:
  explicit SimulatedWorker(SimulatedWorkerOptions options);
  [[nodiscard]] WorkerCapabilities capabilities() const override;
  void set_notify(const std::function<void()>& notify) override { transfers_.set_notify(notify); }
  [[nodiscard]] std::optional<double> next_transfer_s() const override { return std::numeric_limits<double>::infinity(); }
  void start(const StepPlan& plan) override { task_.start(plan); }
  void provide(std::span<const TokenMask> masks) override { task_.provide(masks); }
  void assist() override { task_.assist(); }
  WorkerResult finish() override { return task_.finish(); }

 private:
  void forward(const StepPlan& plan) override;
  void sample(const StepPlan& plan, std::span<const TokenMask> masks, StepResults& results) override;
  void update_batch(const StepPlan& plan);
  void write(const ScheduledRequest& request);
  void verify(const ScheduledRequest& request);
  void mark_corrupted(const ScheduledRequest& request);
  // Returns the first position that token `position` attends to in a group.
  [[nodiscard]] std::uint32_t window_begin(std::uint32_t group, std::uint32_t position) const;
  void read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) override;
  void read_logits(std::uint32_t output, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) override;
  [[nodiscard]] PositionLogprobs score(const PromptRun& run, std::uint32_t token) const;
  void route_all();
  // Returns the history followed by the draft tokens of this step; valid until the next call.
  std::span<const TokenId> history(const ScheduledRequest& request);
  void sample_outputs(const ScheduledRequest& request, std::span<const std::uint32_t> allowed, StepResults& results);
  [[nodiscard]] SampleOutcome sample_one_output(const ScheduledRequest& request, std::span<const std::uint32_t> allowed) const;

  SimulatedWorkerOptions options_;
  BlockTables tables_;
  Batch batch_;
  std::vector<TokenId> history_;
  // One tensor with one page per block, [block_size]: the hash of the history up to each token; 0: never written.
  KvCache cache_;
  std::span<std::uint64_t> kv_;  // all pages
  TransferRunner transfers_;
  std::vector<const SamplingParams*> params_;
  std::vector<std::uint16_t> experts_;  // for the rows of this step's routed runs
  std::vector<bool> is_corrupted_;      // by slot: the request read wrong content in this step
  Pooler pooler_;
  ThreadPool pool_;
  StepTask task_;  // declared last, because it uses all the others
};

}  // namespace quire
