#pragma once
// A step loop whose worker reports the transfers that a test marks as done.
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/manual_clock.h"
#include "engine/loop/step_loop.h"
#include "engine/simulated_engine.h"
#include "support/scripted_connector.h"

namespace quire {

inline constexpr TokenId kFirstToken = 10;

// Computes nothing: samples kFirstToken, and one more than the last token for each draft. Reports the transfers that the test marks as
// done.
class TransferWorker final : public WorkerBase {
 public:
  void start(const StepPlan& plan) override {
    plan_ = &plan;
    if (++num_steps == sends_first_at_step) sent = {RequestId{1}};
  }
  WorkerResult finish() override {
    Results& results = results_[plan_->step.value % 2];
    results = {};
    std::swap(results.sent, sent);
    std::swap(results.received, received);
    for (const ScheduledRequest& request : plan_->scheduled) {
      if (!request.samples) continue;
      std::vector<SampleOutcome>& samples = results.samples.emplace_back(request.drafts.size() + 1);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i].token = kFirstToken + static_cast<TokenId>(i);
        samples[i].logprobs.entries = {{samples[i].token, -1.0F, 1}};
      }
      results.requests.push_back({request.id, samples});
    }
    return {.step = {.step = plan_->step,
                     .has_connector_output = true,
                     .finished_sending = results.sent,
                     .finished_receiving = results.received},
            .requests = results.requests};
  }
  [[nodiscard]] std::optional<double> next_transfer_s() const override { return due_s; }

  std::vector<RequestId> sent, received;  // transfers that end with the next step
  std::uint32_t sends_first_at_step = UINT32_MAX;
  std::optional<double> due_s;
  std::atomic<std::uint32_t> num_steps = 0;

 private:
  struct Results {
    std::vector<std::vector<SampleOutcome>> samples;
    std::vector<RequestResult> requests;
    std::vector<RequestId> sent, received;
  };
  const StepPlan* plan_ = nullptr;
  std::array<Results, 2> results_;
};

inline ResolvedEngine resolved_for(bool async_scheduling, std::uint32_t num_blocks, SchedulingPolicy policy = SchedulingPolicy::fcfs) {
  EngineOptions options;
  options.scheduler.policy = policy;
  options.cache.block_size = 4;
  options.cache.num_blocks = num_blocks;
  options.scheduler.async_scheduling = async_scheduling;
  return resolve_options(options, simulated_model(), {1, 0}).value();
}

struct TransferBench {
  explicit TransferBench(bool async_scheduling, std::uint32_t num_blocks = 40, std::uint32_t num_spec_tokens = 0,
                         SchedulingPolicy policy = SchedulingPolicy::fcfs) {
    CoreConfig config = resolved_for(async_scheduling, num_blocks, policy).core;
    config.speculation.num_spec_tokens = num_spec_tokens;
    auto made = Core::create(config, {.connector = &connector}).value();
    core = made.get();
    auto made_worker = std::make_unique<TransferWorker>();
    worker = made_worker.get();
    StepLoop::Options options{.eos_ids = {kEos}, .async_scheduling = async_scheduling};
    options.seams.clock = clock;
    loop = std::make_unique<StepLoop>(std::move(made), std::move(made_worker), std::move(options));
  }
  void add(std::uint64_t id, EngineRequest request) {
    loop->add({.id = RequestId{id}, .request = std::move(request), .block_keys = {}, .sink = &sink, .arrival_s = 0.0});
  }
  // Adds requests 7, 8 and 9; the first waits for blocks that arrive at 5 seconds.
  void add_loading_siblings() {
    connector.matches[RequestId{7}] = {.num_tokens = 8, .load_async = true};
    worker->due_s = 5.0;
    EngineRequest request = make_request(10, 3);
    request.n = 3;
    add(7, request);
    run();
  }
  // Steps until there is nothing left to do now and returns the number of steps.
  std::uint32_t run() {
    const std::uint32_t before = worker->num_steps;
    while (loop->can_step() && worker->num_steps < before + 100) {
      loop->step();
      loop->deliver();
    }
    return worker->num_steps - before;
  }

  test::ScriptedConnector connector;
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  Collector sink;
  Core* core = nullptr;
  TransferWorker* worker = nullptr;
  std::unique_ptr<StepLoop> loop;
};

}  // namespace quire
