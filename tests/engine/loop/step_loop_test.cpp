// Tests the order in which steps are planned, run, applied and delivered. The test runs each step by hand.
#include "engine/loop/step_loop.h"

#include <gtest/gtest.h>

#include <string>

#include "base/manual_clock.h"
#include "engine/resolve_options.h"
#include "engine/simulated_engine.h"

namespace quire {
namespace {

// Records the order of steps and outputs: +N a step starts, =N it ends, dN a token is delivered to request N.
struct Log {
  std::string text;
  void add(char what, std::uint64_t number) { text += std::string(text.empty() ? "" : " ") + what + std::to_string(number); }
};

class LoggingWorker final : public WorkerBase {
 public:
  LoggingWorker(SimulatedWorkerOptions options, Log& log) : worker_(std::move(options)), log_(&log) {}
  void start(const StepPlan& plan) override {
    log_->add('+', plan.step.value);
    worker_.start(plan);
  }
  WorkerResult finish() override {
    const WorkerResult result = worker_.finish();
    log_->add('=', result.step.step.value);
    return result;
  }

 private:
  SimulatedWorker worker_;
  Log* log_;
};

class LoggingSink final : public OutputSink {
 public:
  explicit LoggingSink(Log& log) : log_(&log) {}
  void deliver(std::vector<RequestOutput> outputs) override {
    for (const RequestOutput& output : outputs) {
      for (std::size_t i = 0; i < output.tokens.size(); ++i) log_->add('d', output.id.value);
      errors += output.reason == FinishReason::error && output.finished ? 1 : 0;
      finals += output.finished ? 1 : 0;
    }
  }
  std::uint32_t errors = 0, finals = 0;

 private:
  Log* log_;
};

struct Bench {
  explicit Bench(bool async_scheduling, TokenId poison = -1) : sink(log) {
    EngineOptions given;
    given.cache.num_blocks = 100;
    given.scheduler.async_scheduling = async_scheduling;
    const ResolvedEngine resolved = resolve_options(given, simulated_model(), {1, 0}).value();
    SimulatedWorkerOptions worker{
        .limits = resolved.limits, .block_size = 16, .num_blocks = 100, .vocab_size = kVocab, .poison = poison, .before_step = {}};
    loop = std::make_unique<StepLoop>(Core::create(resolved.core).value(), std::make_unique<LoggingWorker>(std::move(worker), log),
                                      StepLoop::Options{.eos_ids = {kEos}, .async_scheduling = async_scheduling});
  }
  void add(std::uint64_t id, EngineRequest request) {
    loop->add({.id = RequestId{id}, .request = std::move(request), .block_keys = {}, .sink = &sink, .arrival_s = 0.0});
  }
  void step() {
    loop->step();
    loop->deliver();
  }
  std::string run() {
    while (loop->has_work()) step();
    loop->check_all_free();
    return log.text;
  }

  Log log;
  LoggingSink sink;
  std::unique_ptr<StepLoop> loop;
};

TEST(StepLoop, SynchronousStepsAreDeliveredBeforeTheNextIsPlanned) {
  Bench bench(false);
  bench.add(7, make_request(5, 3));
  EXPECT_EQ(bench.run(), "+0 =0 d7 +1 =1 d7 +2 =2 d7");
}

TEST(StepLoop, AnAsynchronousStepRunsWhileThePreviousOneIsDelivered) {
  Bench bench(true);
  bench.add(7, make_request(5, 3));
  // Step 3 runs no request: the scheduler knew when it planned the step that the third token is the last.
  EXPECT_EQ(bench.run(), "+0 =0 +1 d7 =1 +2 d7 =2 +3 d7 =3");
  EXPECT_EQ(bench.loop->stats().step_time_s.counts.back(), 4U);
  EXPECT_EQ(bench.loop->stats().forward_time_s.counts.back(), 3U) << "the last step computed nothing";
}

TEST(StepLoop, ATokenSampledAfterTheEndIsDropped) {
  Bench bench(true);
  EngineRequest request = make_request(5, 50);
  const Expected whole = expected(request);
  request.sampling.stop_token_ids = {whole.tokens[2]};
  bench.add(7, request);
  EXPECT_EQ(bench.run(), "+0 =0 +1 d7 =1 +2 d7 =2 +3 d7 =3") << "step 3 samples a fourth token";
  EXPECT_EQ(bench.sink.finals, 1U);
}

TEST(StepLoop, ARequestThatFailsWhileItsNextStepRunsEndsOnceAndReleasesItsBlocks) {
  for (const bool async_scheduling : {false, true}) {
    Bench bench(async_scheduling, kPoison);
    EngineRequest failing = make_request(5, 50);
    failing.prompt.back() = kPoison;
    bench.add(7, failing);
    bench.add(8, make_request(5, 4, 9));
    bench.run();
    EXPECT_EQ(bench.sink.errors, 1U);
    EXPECT_EQ(bench.sink.finals, 2U);
    EXPECT_EQ(bench.loop->stats().generation_tokens, 4U);
    EXPECT_EQ(bench.loop->stats().finished_error, 1U);
  }
}

TEST(StepLoop, AnAbortedRequestMayStillBeInFlight) {
  Bench bench(true);
  bench.add(7, make_request(5, 50));
  bench.step();
  bench.step();
  bench.loop->finish(RequestId{7}, FinishReason::abort);
  bench.loop->finish(RequestId{7}, FinishReason::abort);
  EXPECT_EQ(bench.run(), "+0 =0 +1 d7 =1");
  EXPECT_EQ(bench.sink.finals, 1U);
  EXPECT_EQ(bench.loop->stats().num_free_blocks, bench.loop->stats().num_blocks);
}

TEST(StepLoop, APausedLoopFinishesStepsInFlightAndThenStops) {
  Bench bench(true);
  bench.add(7, make_request(5, 4));
  bench.step();
  bench.loop->set_pause_state(PauseState::paused_all);
  EXPECT_TRUE(bench.loop->can_step());
  bench.step();
  EXPECT_FALSE(bench.loop->can_step());
  EXPECT_TRUE(bench.loop->has_work());
  EXPECT_EQ(bench.log.text, "+0 =0 d7");
  bench.loop->set_pause_state(PauseState::unpaused);
  EXPECT_EQ(bench.run().substr(9), "+1 =1 +2 d7 =2 +3 d7 =3 +4 d7 =4");
}

// A whole engine runs in virtual time: latencies are exactly the durations that the model gives for the steps.
TEST(StepLoop, VirtualTimeAdvancesOnlyByStepDurations) {
  EngineOptions given;
  given.cache.num_blocks = 100;
  given.scheduler.async_scheduling = false;
  const ResolvedEngine resolved = resolve_options(given, simulated_model(), {1, 0}).value();
  const auto clock = std::make_shared<ManualClock>();
  auto worker = std::make_unique<SimulatedWorker>(SimulatedWorkerOptions{.limits = resolved.limits,
                                                                         .block_size = 16,
                                                                         .num_blocks = 100,
                                                                         .vocab_size = kVocab,
                                                                         .clock = clock,
                                                                         .step_time = {.step_s = 1.0, .prompt_token_s = 0.5}});
  StepLoop loop(Core::create(resolved.core).value(), std::move(worker), {.eos_ids = {kEos}, .seams = {.clock = clock}});
  Collector sink;
  EngineRequest request = make_request(21, 5);
  request.sampling.ignore_eos = true;
  loop.add({.id = RequestId{0}, .request = std::move(request), .block_keys = {}, .sink = &sink, .arrival_s = 0.0});
  while (loop.has_work()) {
    loop.step();
    loop.deliver();
  }
  const EngineStats& stats = loop.stats();
  EXPECT_EQ(stats.time_to_first_token_s.sum, 1.0 + 20 * 0.5);
  EXPECT_EQ(stats.inter_token_latency_s.sum, 4.0);
  EXPECT_EQ(stats.forward_time_s.sum, 15.0);
  EXPECT_EQ(stats.sample_time_s.sum, 0.0);
  EXPECT_EQ(stats.e2e_latency_s.sum, 15.0);
}

}  // namespace
}  // namespace quire
