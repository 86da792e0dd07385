#pragma once
// The interface between the engine and the code that computes. The engine thread calls it. A model on this machine (worker.h) and a
// simulated one (simulated_worker.h) implement it. Neither knows the core: they receive plans and return results.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/image.h"
#include "quire/base/plan.h"
#include "runtime/sample/sampler.h"
#include "runtime/transport/transfer_runner.h"
#include "runtime/worker/prompt_images.h"

namespace quire {

// The experts of consecutive tokens of a request.
struct RoutedRows {
  std::uint32_t first_token = 0;                // index in the request
  std::uint32_t width = 0;                      // numbers per token: [layer][experts_per_token]
  std::span<const std::uint16_t> experts = {};  // [token][width]

  [[nodiscard]] std::uint32_t num_tokens() const { return width == 0 ? 0 : static_cast<std::uint32_t>(experts.size() / width); }
};

// The results of a step for one request. A request without results has no entry, for example in the middle of a long prompt.
struct RequestResult {
  RequestId id;
  // Sampled tokens after the scheduled tokens, in order, each with its log probabilities, which may be moved out. A failed sample comes
  // alone: after an accepted draft token, the failure is left to the next step. Later results of the request mean nothing.
  std::span<SampleOutcome> samples = {};
  std::uint32_t num_verified = 0;  // draft tokens after which there was a row to sample from
  // Draft tokens that the worker proposes after the samples. The step that runs the next plan with this request verifies them. They take
  // the positions that the plan reserves (asynchronous scheduling), or the core schedules some of them (Core::set_drafts).
  std::span<const TokenId> drafts = {};
  // Log probabilities of prompt tokens from `first_prompt_token` on, if the request asks for them; they may be moved out. An entry is empty
  // if its row had no finite distribution. After a preemption they are reported again with the same bits, unless the prompt was complete.
  std::span<PositionLogprobs> prompt_logprobs = {};
  std::uint32_t first_prompt_token = 0;
  // Experts of the computed tokens, including accepted draft tokens, if the request asks for them. After a preemption they are reported
  // again with the same values.
  RoutedRows routed = {};
  // The vector of a pooling request when its prompt is complete (PoolingParams), else null. It may be moved out.
  std::vector<float>* pooled = nullptr;
};

// All values are in seconds.
struct StepTimings {
  double step_s = 0.0;     // from its start to its last token, including waits for masks
  double forward_s = 0.0;  // the plan's changes and the pass, including waits for transfers
  double sample_s = 0.0;
};

// These views are valid until the finish() after the next one.
struct WorkerResult {
  StepResult step;                               // for the core; the engine makes its `sampled` from `requests`
  std::span<const RequestResult> requests = {};  // in the plan's order; requests without results are left out
  TransferTotals transfers = {};
  ExpertReads expert_reads = {};
  StepTimings timings = {};
};

// The tokens that a request may sample next: token t is allowed if bit t % 32 of word t / 32 is set. There are (vocab_size + 31) / 32 words
// for the row of its last known token, and as many for the row of each of its draft tokens.
struct TokenMask {
  RequestId id;
  std::span<const std::uint32_t> allowed;
};

// The features that a worker supports. The engine refuses to start if the core could plan for more (engine/check_served.h).
struct WorkerCapabilities {
  std::uint32_t num_cache_groups = 1;  // at most
  std::uint32_t num_spec_tokens = 0;   // draft tokens per step that it verifies
  bool transfers = false;
  bool token_masks = false;  // provide()
  bool prompt_logprobs = false;
  bool routed_experts = false;  // the model has experts
  bool pooling = false;
  bool encoder_inputs = false;
  bool pipeline = false;  // it is one of several stages
  bool context_parallel = false;
};

// One thread calls it. Plans run in order and one at a time; each is started and finished exactly once. Between start() and finish() the
// step may run on other threads, and it reads the plan and its sampling parameters.
class WorkerBase {
 public:
  virtual ~WorkerBase() = default;
  virtual void start(const StepPlan& plan) = 0;
  // Called after start() of a plan with has_structured_output and before its finish(). `masks`: the masks of requests that sample in this
  // step, in the plan's order; other requests are unconstrained. Sampling waits for the masks, the forward pass does not. They are read
  // until finish() returns.
  virtual void provide(std::span<const TokenMask> /*masks*/) { QUIRE_CHECK(false, "a worker that receives token masks supports them"); }
  // Helps to compute until the end of the step is near, which is the time to make the next plan.
  virtual void assist() {}
  // Helps to compute until the step ends, and returns its results.
  virtual WorkerResult finish() = 0;
  [[nodiscard]] virtual WorkerCapabilities capabilities() const { return {}; }

  // Takes images, if WorkerCapabilities::encoder_inputs is set; may be called while a step is in flight. The caller stores the result with
  // the request (EncoderSource).
  virtual std::shared_ptr<const PromptImages> take_images(std::span<const PromptImage> /*pictures*/) {
    QUIRE_CHECK(false, "a worker that receives images has an encoder");
    return nullptr;
  }
  // Queues these images, which are encoded after passes from now on, in their order.
  virtual void encode_ahead(std::span<const std::shared_ptr<EncodedImage>> /*pictures*/) {
    QUIRE_CHECK(false, "a worker that receives images has an encoder");
  }
  // Drops the images that are kept; open requests keep theirs. May be called while a step is in flight.
  virtual void forget_images() {}
  // Encodes for some milliseconds. Must not be called while a step is in flight.
  virtual void encode() {}

  // Sets a function that is called after each end of a transfer, from any thread. Must be called before the first plan.
  virtual void set_notify(const std::function<void()>& /*notify*/) {}
  // Returns when a step, which may be empty, should collect finished transfers, in seconds of the engine's clock. Infinity: when the worker
  // notifies; nullopt: the engine chooses. The engine asks while transfers are in flight and nothing else is left to do.
  [[nodiscard]] virtual std::optional<double> next_transfer_s() const { return std::nullopt; }

  WorkerResult execute(const StepPlan& plan) {
    start(plan);
    return finish();
  }
};

}  // namespace quire
