#pragma once
// A step loop with a manual clock. A test sets the times and totals that its worker reports.
#include <memory>
#include <utility>
#include <vector>

#include "base/manual_clock.h"
#include "engine/loop/step_loop.h"
#include "engine/requests/block_keys.h"
#include "engine/simulated_engine.h"
#include "support/scripted_connector.h"

namespace quire::test {

// Samples token 11 and advances the clock.
class MeteredWorker final : public WorkerBase {
 public:
  explicit MeteredWorker(std::shared_ptr<ManualClock> clock) : clock_(std::move(clock)) {}
  void start(const StepPlan& plan) override { plan_ = &plan; }
  WorkerResult finish() override {
    clock_->now += step_s;
    samples_.clear();
    requests_.clear();
    for (const ScheduledRequest& request : plan_->scheduled) {
      if (!request.samples) continue;
      samples_.emplace_back(1 + num_accepted)[0].token = 11;
      for (SampleOutcome& sample : samples_.back()) sample.token = 11;
      requests_.push_back({.id = request.id, .num_verified = num_verified});
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) requests_[i].samples = samples_[i];
    return {.step = {.step = plan_->step},
            .requests = requests_,
            .transfers = transfers,
            .expert_reads = expert_reads,
            .timings = {.step_s = step_s, .forward_s = forward_s, .sample_s = sample_s}};
  }

  double step_s = 0.0, forward_s = 0.0, sample_s = 0.0;
  std::uint32_t num_verified = 0, num_accepted = 0;  // draft tokens of each request
  TransferTotals transfers;
  ExpertReads expert_reads;

 private:
  std::shared_ptr<ManualClock> clock_;
  const StepPlan* plan_ = nullptr;
  std::vector<std::vector<SampleOutcome>> samples_;
  std::vector<RequestResult> requests_;
};

struct MeteredLoop {
  // `seams.events` may be null. Blocks have 16 tokens.
  explicit MeteredLoop(StepLoop::Options options = {}, CoreSeams seams = {}, const EngineOptions& engine = {}) {
    EngineOptions given = engine;
    given.cache.num_blocks = 100;
    given.scheduler.async_scheduling = false;
    config = resolve_options(given, simulated_model(), {1, 0}).value().core;
    auto made = Core::create(config, seams).value();
    core = made.get();
    auto made_worker = std::make_unique<MeteredWorker>(clock);
    worker = made_worker.get();
    options.eos_ids = {kEos};
    options.seams.clock = clock;
    loop = std::make_unique<StepLoop>(std::move(made), std::move(made_worker), std::move(options));
  }
  [[nodiscard]] Submission submission(std::uint64_t id, EngineRequest request) {
    request.sampling.ignore_eos = true;
    Submission made{.id = RequestId{id}, .request = std::move(request), .block_keys = {}, .sink = &sink, .arrival_s = clock->now};
    made.block_keys = name_blocks(made.request, nullptr, config);
    return made;
  }
  void add(std::uint64_t id, EngineRequest request) { loop->add(submission(id, std::move(request))); }
  void step() {
    loop->step();
    loop->deliver();
  }
  void run() {
    while (loop->has_work()) step();
  }
  void run(std::uint64_t id, EngineRequest request) {
    add(id, std::move(request));
    run();
  }

  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  Collector sink;
  CoreConfig config;
  Core* core = nullptr;
  MeteredWorker* worker = nullptr;
  std::unique_ptr<StepLoop> loop;
};

}  // namespace quire::test
