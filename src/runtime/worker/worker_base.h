#pragma once
// The seam between the engine and what computes.
// The engine's thread calls it; a model on this machine (worker.h), and a simulated one, are behind it. Neither knows the core: they see
// plans, and answer results.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/picture.h"
#include "quire/base/plan.h"
#include "runtime/sample/sampler.h"
#include "runtime/transport/transfer_runner.h"
#include "runtime/worker/prompt_pictures.h"

namespace quire {

// The experts of consecutive tokens of a request.
struct RoutedRows {
  std::uint32_t first_token = 0;                // its place in the request
  std::uint32_t width = 0;                      // numbers of a token: [layer][experts_per_token]
  std::span<const std::uint16_t> experts = {};  // [token][width]

  [[nodiscard]] std::uint32_t num_tokens() const { return width == 0 ? 0 : static_cast<std::uint32_t>(experts.size() / width); }
};

// What a step has to say about one request.
// Requests of which there is nothing to say have none: in the middle of a long prompt, for example.
struct RequestResult {
  RequestId id;
  // What follows the scheduled tokens, in order, each with its log probabilities, which may be moved out. A failed one comes alone, since
  // behind a draft that was right it is left to the next step; what comes after it means nothing.
  std::span<SampleOutcome> samples = {};
  std::uint32_t num_verified = 0;  // drafts behind which there was a row to sample from
  // What the worker expects behind them, to be verified by the step that runs the next plan with this request: in the places that it holds
  // for drafts (asynchronous scheduling), or those of it that it schedules (Core::set_drafts).
  std::span<const TokenId> drafts = {};
  // Where its parameters ask for them, the log probabilities of tokens of its prompt, from `first_prompt_token` on; they may be moved out.
  // One without entries had no finite distribution. After a preemption they come again, with the same bits, unless the prompt was done.
  std::span<PositionLogprobs> prompt_logprobs = {};
  std::uint32_t first_prompt_token = 0;
  // Where they ask for them, the experts of the tokens that were computed, the drafts among them that were right. After a preemption they
  // come again, the same.
  RoutedRows routed = {};
  // Of a pooling request whose prompt is done (PoolingParams), else null. It may be moved out.
  std::vector<float>* pooled = nullptr;
};

// s
struct StepTimings {
  double step_s = 0.0;     // from its begin to its last token, masks awaited in between included
  double forward_s = 0.0;  // the plan's changes and the pass, transfers waited for included
  double sample_s = 0.0;
};

// Views, valid until the finish() after the next one.
struct WorkerResult {
  StepResult step;                               // for the core, but for its `sampled`, which the engine makes from `requests`
  std::span<const RequestResult> requests = {};  // in the plan's order; of whom there is nothing to say is not there
  TransferTotals transfers = {};
  ExpertReads expert_reads = {};
  StepTimings timings = {};
};

// What a request may sample next: token t where bit t % 32 of word t / 32 is set. (vocab_size + 31) / 32 words behind its last known token,
// and as many behind each of its drafts.
struct TokenMask {
  RequestId id;
  std::span<const std::uint32_t> allowed;
};

// What a worker can carry out: a core whose plans would ask for more is refused when the engine is made (engine/check_served.h).
struct WorkerCapabilities {
  std::uint32_t num_cache_groups = 1;  // at most
  std::uint32_t num_spec_tokens = 0;   // drafts per step that it verifies
  bool transfers = false;
  bool token_masks = false;  // provide()
  bool prompt_logprobs = false;
  bool routed_experts = false;  // the model has some
  bool pooling = false;
  bool encoder_inputs = false;
  bool pipeline = false;  // it is one stage of several
  bool context_parallel = false;
};

// Called by one thread; plans in order, each started and finished exactly once, and one at
// a time. Between the two the step may go on, on other threads, and reads the plan and its sampling parameters.
class WorkerBase {
 public:
  virtual ~WorkerBase() = default;
  virtual void start(const StepPlan& plan) = 0;
  // After start() of a plan with has_structured_output, and before its finish(): the masks of requests that sample in this step, in the
  // plan's order; the others are free. The forward pass does not wait for them, sampling does. They are read until finish() returns.
  virtual void provide(std::span<const TokenMask> /*masks*/) { QUIRE_CHECK(false, "this worker takes no token masks"); }
  // Computes with the others until the end of the step is near: the time to make the next plan.
  virtual void assist() {}
  // Computes with the others to the end.
  virtual WorkerResult finish() = 0;
  [[nodiscard]] virtual WorkerCapabilities capabilities() const { return {}; }

  // Pictures, where WorkerCapabilities::encoder_inputs says so; also while a step is under way. What is answered goes with the request
  // (EncoderSource).
  virtual std::shared_ptr<const PromptPictures> take_pictures(std::span<const PromptPicture> /*pictures*/) {
    QUIRE_CHECK(false, "this worker runs no encoder");
    return nullptr;
  }
  // These are encoded behind passes from now on, each in its turn.
  virtual void encode_ahead(std::span<const std::shared_ptr<EncodedPicture>> /*pictures*/) {
    QUIRE_CHECK(false, "this worker runs no encoder");
  }
  // While no step is under way: encodes for some milliseconds.
  virtual void encode() {}

  // Before the first plan: called after each end of a transfer, from any thread.
  virtual void notify_with(const std::function<void()>& /*notify*/) {}
  // While transfers are under way: the time (s, of the engine's clock) at which a step, which may be empty, should collect those that are
  // over; infinite: when it notifies. The engine asks when nothing else is left to do; nullopt leaves the time to it.
  [[nodiscard]] virtual std::optional<double> next_transfer_s() const { return std::nullopt; }

  WorkerResult execute(const StepPlan& plan) {
    start(plan);
    return finish();
  }
};

}  // namespace quire
