#pragma once
// Interface between the engine and the code that computes. Called on the engine thread. A model on this machine (worker.h) and a simulated
// model (simulated_worker.h) implement it. An implementation receives plans and returns results; it does not use the core.
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

// The results of a step for one request. A request without results has no entry, for example while a long prompt is only partly computed.
struct RequestResult {
  RequestId id;
  // Sampled tokens after the scheduled tokens, in order, with their log probabilities, which may be moved out. A failed sample is the only
  // sample: a failure after an accepted draft token is dropped, and the next step samples again. After a failed sample, later results of
  // the request are meaningless.
  std::span<SampleOutcome> samples = {};
  std::uint32_t num_verified = 0;  // number of draft tokens in the pass
  // Draft tokens that the worker proposes after the samples. The step of the next plan with this request verifies them. They take the
  // positions that the plan reserves (asynchronous scheduling), or the core schedules some of them (Core::set_drafts).
  std::span<const TokenId> drafts = {};
  // Log probabilities of prompt tokens from `first_prompt_token` on, if the request asks for them; may be moved out. An entry is empty if
  // its row had no finite distribution. After a preemption, the log probabilities are reported again with the same bits, unless the prompt
  // was complete.
  std::span<PositionLogprobs> prompt_logprobs = {};
  std::uint32_t first_prompt_token = 0;
  // Experts of the computed tokens, including accepted draft tokens, if the request asks for them. After a preemption, the experts are
  // reported again with the same values.
  RoutedRows routed = {};
  // The vector of a pooling request whose prompt is complete (PoolingParams); else null. May be moved out.
  std::vector<float>* pooled = nullptr;
};

// All values are in seconds.
struct StepTimings {
  double step_s = 0.0;     // from the start of the step to its last token, including waits for masks
  double forward_s = 0.0;  // the plan's changes and the pass, including waits for transfers
  double sample_s = 0.0;
};

// The views of a result are valid until the second next finish().
struct WorkerResult {
  StepResult step;                               // for the core; the engine makes its `sampled` from `requests`
  std::span<const RequestResult> requests = {};  // in the plan's order; requests without results are left out
  TransferTotals transfers = {};
  ExpertReads expert_reads = {};
  StepTimings timings = {};
};

// The tokens that a request may sample next: token t is allowed if bit t % 32 of word t / 32 is set. The row after the last known token has
// (vocab_size + 31) / 32 words, followed by as many words for the row after each draft token.
struct TokenMask {
  RequestId id;
  std::span<const std::uint32_t> allowed;
};

// Features of a worker. The engine refuses to start if the core could plan for more (engine/check_served.h).
struct WorkerCapabilities {
  std::uint32_t num_cache_groups = 1;  // at most
  std::uint32_t num_spec_tokens = 0;   // maximum number of draft tokens per request and step
  bool transfers = false;
  bool token_masks = false;  // provide()
  bool prompt_logprobs = false;
  bool routed_experts = false;  // the model has experts
  bool pooling = false;
  bool encoder_inputs = false;
  bool pipeline = false;  // the worker is one of several pipeline stages
  bool context_parallel = false;
};

// Used by one thread. Plans run in order and one at a time; each plan is started and finished exactly once. Between start() and finish(),
// the step may run on other threads and reads the plan and its sampling parameters.
class WorkerBase {
 public:
  virtual ~WorkerBase() = default;
  virtual void start(const StepPlan& plan) = 0;
  // Passes token masks. Called after start() of a plan with has_structured_output and before its finish(). `masks`: the masks of requests
  // that sample in this step, in the plan's order; requests without a mask are unconstrained. Sampling waits for the masks, the forward
  // pass does not. The masks must stay valid until finish() returns.
  virtual void provide(std::span<const TokenMask> /*masks*/) { QUIRE_CHECK(false, "a worker that receives token masks supports them"); }
  // Takes part in the computation until the step has almost ended, when the engine should make the next plan.
  virtual void assist() {}
  // Takes part in the computation until the step has ended, and returns its results.
  virtual WorkerResult finish() = 0;
  [[nodiscard]] virtual WorkerCapabilities capabilities() const { return {}; }

  // Creates the worker's state of a request's images, if WorkerCapabilities::encoder_inputs is set. May be called while a step is in
  // flight. The caller stores the result with the request (EncoderSource).
  virtual std::shared_ptr<const PromptImages> take_images(std::span<const PromptImage> /*pictures*/) {
    QUIRE_CHECK(false, "a worker that receives images has an encoder");
    return nullptr;
  }
  // Queues images for encoding. After each pass, and in encode() while no step runs, the worker encodes queued images for a short time, in
  // the order of the queue.
  virtual void encode_ahead(std::span<const std::shared_ptr<EncodedImage>> /*pictures*/) {
    QUIRE_CHECK(false, "a worker that receives images has an encoder");
  }
  // Drops the kept images, except images of open requests. May be called while a step is in flight.
  virtual void forget_images() {}
  // Encodes queued images for a few milliseconds. Must not be called while a step is in flight.
  virtual void encode() {}

  // Sets a function that is called after each end of a transfer, from any thread. Must be called before the first plan.
  virtual void set_notify(const std::function<void()>& /*notify*/) {}
  // Returns the time at which a step, possibly an empty step, should collect finished transfers, in seconds of the engine's clock.
  // Infinity: when the worker calls the notify function; nullopt: the engine chooses the time. Called while transfers are in flight and no
  // other work is left.
  [[nodiscard]] virtual std::optional<double> next_transfer_s() const { return std::nullopt; }

  WorkerResult execute(const StepPlan& plan) {
    start(plan);
    return finish();
  }
};

}  // namespace quire
