#pragma once
// A worker without a model, for tests and simulations. The next token is a function of the history alone, and the KV cache holds, for
// each position and cache group, a name of the whole history up to it: a plan that reads what was never written there stops the program,
// and one that loses or repeats a token shows in the answer.
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
  std::uint32_t num_blocks = 0;  // with the null block
  std::uint32_t vocab_size = 0;
  // After this token a row has no distribution, as if the model had given NaN; -1: never.
  TokenId poison = -1;
  // A row that attends to a block with something else in it does not stop the program: it draws a wrong token, or none, and writes to its
  // blocks what is as bad. For loads that fail.
  bool bears_garbage = false;
  // Called before each step on the thread that runs it; may be empty.
  std::function<void(const StepPlan&)> before_step = {};
  // What the model says after a history, instead of simulated_token(): a function of it. Called on the thread that runs the step. Log
  // probabilities and drafts are not this model's.
  std::function<TokenId(std::span<const TokenId> history)> next_token = {};
  std::uint32_t num_spec_tokens = 0;          // drafts per step that it proposes, some of them wrong, and verifies
  std::uint32_t num_threads = 1;              // 1: a step runs in finish(); 2: on a thread of its own
  std::vector<std::uint32_t> windows = {};    // tokens, by cache group; 0: none; empty: one group without
  std::shared_ptr<Transport> transport = {};  // may be null
  // Virtual time, which each step moves on by what the model says; null: steps take what they take.
  std::shared_ptr<ManualClock> clock = {};
  StepTimeModel step_time = {};
};

// What a simulated model says after this history.
TokenId simulated_token(std::span<const TokenId> history, std::uint32_t vocab_size);
// The same under a mask (TokenMask; empty: none): the next allowed one, going round. -1: it allows none.
TokenId simulated_token(std::span<const TokenId> history, std::uint32_t vocab_size, std::span<const std::uint32_t> allowed);
// The `count` tokens that are guessed to follow: one in four is wrong.
std::vector<TokenId> simulated_drafts(std::span<const TokenId> history, std::uint32_t vocab_size, std::uint32_t count);
// The `count` likeliest tokens, of those that a mask allows if there is one; many are equally likely.
std::vector<TokenLogprob> simulated_likeliest(std::span<const TokenId> history, std::uint32_t vocab_size, std::uint32_t count,
                                              std::span<const std::uint32_t> allowed = {});
// What it says of `token` after this history, and of the `count` likeliest.
PositionLogprobs simulated_logprobs(std::span<const TokenId> history, std::uint32_t vocab_size, TokenId token, std::uint32_t count);
// Its hidden row after this history.
inline constexpr std::uint32_t kSimulatedWidth = 4;
std::array<float, kSimulatedWidth> simulated_hidden(std::span<const TokenId> history);
// The experts of the last token of this history: of one layer.
inline constexpr std::uint32_t kSimulatedExperts = 2;
std::array<std::uint16_t, kSimulatedExperts> simulated_experts(std::span<const TokenId> history);
// What a pooling request with this prompt ends with.
std::vector<float> simulated_pooled(std::span<const TokenId> prompt, const PoolingParams& params);

// The same seams as Worker, transfers included, so that engine, core and tiers can be tested without a model.
class SimulatedWorker : public WorkerBase, private StepParts, private PooledRows {
 public:
  explicit SimulatedWorker(SimulatedWorkerOptions options);
  [[nodiscard]] WorkerCapabilities capabilities() const override;
  void notify_with(const std::function<void()>& notify) override { transfers_.notify_with(notify); }
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
  void spoil(const ScheduledRequest& request);
  // The first position that token `position` attends to in a group.
  [[nodiscard]] std::uint32_t window_begin(std::uint32_t group, std::uint32_t position) const;
  void read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) override;
  void read_logits(std::uint32_t output, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) override;
  [[nodiscard]] PositionLogprobs score(const PromptRun& run, std::uint32_t token) const;
  void route_all();
  // With the drafts of this step behind it; valid until the next call.
  std::span<const TokenId> history(const ScheduledRequest& request);
  void sample_behind(const ScheduledRequest& request, std::span<const std::uint32_t> allowed, StepResults& results);
  [[nodiscard]] SampleOutcome sample_after(const ScheduledRequest& request, std::span<const std::uint32_t> allowed) const;

  SimulatedWorkerOptions options_;
  BlockTables tables_;
  Batch batch_;
  std::vector<TokenId> history_;
  // A page of one tensor per block, [block_size]: the name of the history up to that token; 0: never written.
  KvCache cache_;
  std::span<std::uint64_t> kv_;  // all of them
  TransferRunner transfers_;
  std::vector<const SamplingParams*> params_;
  std::vector<std::uint16_t> experts_;  // of the rows of this step's routed runs
  std::vector<bool> is_spoiled_;        // by slot: in this step
  Pooler pooler_;
  ThreadPool pool_;
  StepTask task_;  // last: it uses all the others
};

}  // namespace quire
