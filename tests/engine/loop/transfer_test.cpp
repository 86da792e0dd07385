// Steps the loop by hand while transfers of a connector hold blocks, and with several tokens per result. No engine uses these cases today.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <limits>
#include <optional>

#include "base/manual_clock.h"
#include "engine/engine_impl.h"
#include "engine/loop/step_loop.h"
#include "engine/simulated_engine.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

constexpr TokenId kFirstToken = 10;

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

ResolvedEngine resolved_for(bool async_scheduling, std::uint32_t num_blocks) {
  EngineOptions options;
  options.cache.block_size = 4;
  options.cache.num_blocks = num_blocks;
  options.scheduler.async_scheduling = async_scheduling;
  return resolve_options(options, simulated_model(), {1, 0}).value();
}

struct TransferBench {
  explicit TransferBench(bool async_scheduling, std::uint32_t num_blocks = 40, std::uint32_t num_spec_tokens = 0) {
    CoreConfig config = resolved_for(async_scheduling, num_blocks).core;
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

class TransferTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, TransferTest, testing::Bool(), [](const auto& mode) { return std::string(mode.param ? "async" : "sync"); });

TEST_P(TransferTest, TheLoopChecksATransferWhenItIsDueAndNotBefore) {
  TransferBench bench(GetParam());
  bench.connector.keeps_blocks = {RequestId{7}};
  bench.worker->due_s = 5.0;
  bench.add(7, make_request(10, 3));
  EXPECT_LE(bench.run(), 6U);
  EXPECT_EQ(bench.sink.wait(RequestId{7}).tokens.size(), 3U);
  EXPECT_FALSE(bench.loop->has_work());
  EXPECT_TRUE(bench.loop->awaits_transfers());
  EXPECT_EQ(bench.loop->wait_s(), 5.0);
  bench.clock->now = 4.5;
  EXPECT_EQ(bench.loop->wait_s(), 0.5);
  EXPECT_EQ(bench.run(), 0U) << "the loop does not spin";
  bench.clock->now = 5.0;
  bench.worker->due_s = 7.0;
  EXPECT_EQ(bench.run(), 1U) << "the transfer takes longer than estimated";
  EXPECT_EQ(bench.loop->wait_s(), 2.0);
  bench.loop->check_all_free();
  bench.clock->now = 7.0;
  bench.worker->sent = {RequestId{7}};
  bench.run();
  EXPECT_FALSE(bench.loop->awaits_transfers());
  EXPECT_FALSE(bench.loop->wait_s().has_value()) << "it waits for a command";
  bench.loop->check_all_free();
  EXPECT_EQ(bench.loop->stats().num_free_blocks, bench.loop->stats().num_blocks);
}

// An empty step has already polled when the transfer ends. The loop is notified and polls again.
TEST(AsyncTransfers, PollsAgainWhenATransferEndsAfterTheStepInFlightHasPolled) {
  TransferBench bench(true);
  bench.connector.keeps_blocks = {RequestId{7}};
  bench.worker->due_s = std::numeric_limits<double>::infinity();
  bench.add(7, make_request(10, 3));
  bench.run();
  ASSERT_EQ(bench.loop->wait_s(), std::nullopt) << "it waits for a notification";
  bench.loop->note_change();
  bench.loop->step();
  bench.loop->note_change();
  bench.loop->step();
  EXPECT_EQ(bench.loop->wait_s(), 0.0);
  bench.worker->sent = {RequestId{7}};
  bench.run();
  EXPECT_FALSE(bench.loop->awaits_transfers());
}

// The empty step in flight finds no ended transfer. This says nothing about a request that came after the step began.
TEST(AsyncTransfers, RunsARequestThatArrivesAfterTheStepInFlightBegan) {
  TransferBench bench(true);
  bench.connector.keeps_blocks = {RequestId{7}};
  bench.worker->due_s = std::numeric_limits<double>::infinity();
  bench.add(7, make_request(10, 3));
  bench.run();
  bench.loop->note_change();
  bench.loop->step();
  bench.add(8, make_request(10, 3));
  bench.run();
  EXPECT_TRUE(bench.sink.wait_for_end(RequestId{8}, 0));
}

TEST_P(TransferTest, PollsSoonWhenTheWorkerGivesNoDueTime) {
  TransferBench bench(GetParam());
  bench.connector.keeps_blocks = {RequestId{7}};
  bench.add(7, make_request(10, 1));
  bench.run();
  ASSERT_TRUE(bench.loop->wait_s().has_value());
  EXPECT_GT(*bench.loop->wait_s(), 0.0);
  EXPECT_LE(*bench.loop->wait_s(), 0.1);
}

TEST_P(TransferTest, SiblingsWaitForTheBlocksOfTheFirstAndShareThem) {
  TransferBench bench(GetParam());
  bench.add_loading_siblings();
  EXPECT_EQ(bench.sink.num_tokens(RequestId{8}), 0U);
  bench.worker->received = {RequestId{7}};
  bench.clock->now = 5.0;
  bench.run();
  for (std::uint64_t id = 7; id < 10; ++id) EXPECT_EQ(bench.sink.num_tokens(RequestId{id}), 3U);
  EXPECT_EQ(bench.loop->stats().num_forks, 2U);
  bench.loop->check_all_free();
}

TEST_P(TransferTest, SiblingsOfARequestAbortedWhileItLoadsRunOnTheirOwn) {
  TransferBench bench(GetParam());
  bench.add_loading_siblings();
  bench.loop->finish(RequestId{7}, FinishReason::abort);
  bench.run();
  for (const std::uint64_t id : {8U, 9U}) EXPECT_EQ(bench.sink.num_tokens(RequestId{id}), 3U);
  bench.worker->received = {RequestId{7}};
  bench.clock->now = 5.0;
  bench.run();
  EXPECT_EQ(bench.loop->stats().num_forks, 0U);
  bench.loop->check_all_free();
}

TEST_P(TransferTest, OtherRequestsRunWhileARequestWaitsForItsBlocks) {
  TransferBench bench(GetParam());
  bench.connector.matches[RequestId{7}] = {.num_tokens = 8, .load_async = true};
  bench.worker->due_s = 5.0;
  bench.add(7, make_request(10, 3));
  EXPECT_LE(bench.run(), 2U);
  EXPECT_TRUE(bench.loop->has_work());
  EXPECT_FALSE(bench.loop->can_step());
  bench.add(8, make_request(10, 3, 60));
  EXPECT_TRUE(bench.loop->can_step()) << "a command ends the wait";
  EXPECT_LE(bench.run(), 7U);
  EXPECT_EQ(bench.sink.wait(RequestId{8}).tokens.size(), 3U);
  EXPECT_FALSE(bench.loop->can_step());
  bench.clock->now = 5.0;
  bench.worker->received = {RequestId{7}};
  bench.run();
  EXPECT_EQ(bench.sink.wait(RequestId{7}).tokens.size(), 3U);
  EXPECT_EQ(bench.sink.wait(RequestId{7}).num_cached_tokens, 8U);
  bench.loop->check_all_free();
}

TEST_P(TransferTest, ARequestWithMissingBlocksWaitsForTheEndOfATransfer) {
  TransferBench bench(GetParam(), 8);
  bench.connector.keeps_blocks = {RequestId{7}};
  bench.worker->due_s = 5.0;
  bench.add(7, make_request(16, 3));
  bench.run();
  bench.add(8, make_request(16, 3, 60));
  EXPECT_LE(bench.run(), 2U) << "the loop does not spin over an empty plan";
  EXPECT_TRUE(bench.loop->has_work());
  bench.clock->now = 5.0;
  bench.worker->sent = {RequestId{7}};
  bench.run();
  EXPECT_EQ(bench.sink.wait(RequestId{8}).tokens.size(), 3U);
  bench.loop->check_all_free();
}

TEST_P(TransferTest, EachTokenOfAStepHasItsLogprobs) {
  TransferBench bench(GetParam(), 40, 2);
  EngineRequest request = make_request(10, 20);
  request.sampling.logprobs = 1;
  request.sampling.stop_token_ids = {kFirstToken + 2};
  EngineRequest other = make_request(10, 6, 60);
  other.sampling.logprobs = 1;
  bench.add(7, request);
  bench.add(8, other);
  for (int step = 0; step < 20 && bench.loop->can_step(); ++step) {
    const std::vector<TokenId> one = {50}, two = {50, 51};
    const Draft drafts[] = {{RequestId{7}, step < 2 ? one : two}, {RequestId{8}, one}};
    bench.core->set_drafts(drafts);
    bench.loop->step();
    bench.loop->deliver();
  }
  for (const std::uint64_t id : {7U, 8U}) {
    const Collector::Answer answer = bench.sink.wait(RequestId{id});
    EXPECT_GT(answer.tokens.size(), 3U);
    ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
    for (std::size_t i = 0; i < answer.tokens.size(); ++i) EXPECT_EQ(answer.logprobs[i].entries.at(0).token, answer.tokens[i]);
  }
  EXPECT_EQ(bench.sink.wait(RequestId{7}).stop_token, kFirstToken + 2);
  EXPECT_EQ(bench.loop->stats().generation_tokens,
            bench.sink.wait(RequestId{7}).tokens.size() + bench.sink.wait(RequestId{8}).tokens.size());
}

TEST(EngineTransfers, StopWaitsForTransfersOrReportsHowManyAreLeft) {
  for (const bool ends : {true, false}) {
    const ResolvedEngine resolved = resolved_for(true, 40);
    test::ScriptedConnector connector;
    connector.keeps_blocks = {RequestId{1}};
    auto made_worker = std::make_unique<TransferWorker>();
    const TransferWorker* worker = made_worker.get();
    if (ends) made_worker->sends_first_at_step = 30;  // long after the request has ended
    auto core = Core::create(resolved.core, {.connector = &connector}).value();
    StepLoop::Options loop{.eos_ids = {kEos}, .async_scheduling = resolved.options.scheduler.async_scheduling};
    EngineImpl engine(resolved, std::move(core), std::move(loop), {std::move(made_worker)});
    Collector sink;
    sink.wait(engine.submit(make_request(10, 3), sink).value());
    EXPECT_EQ(engine.stop(ends ? 60.0 : 0.05), 0U);
    EXPECT_EQ(engine.stats().num_awaiting_transfers, ends ? 0U : 1U);
    EXPECT_LT(worker->num_steps, 1000U) << "the loop does not spin";
  }
}

}  // namespace
}  // namespace quire
