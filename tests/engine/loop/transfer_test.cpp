// Steps the loop by hand while transfers of a connector hold blocks, and with several tokens per result. No engine uses these cases today.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/loop/controls.h"
#include "engine/loop/transfer_bench.h"

namespace quire {
namespace {

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

// A connector that cannot say yet which tokens it has gives no time either. After some idle steps the loop asks a thousand times a second.
TEST_P(TransferTest, AsksAConnectorWithoutAnAnswerEveryMillisecond) {
  TransferBench bench(GetParam());
  bench.connector.answer = {.num_tokens = std::nullopt};
  bench.add(7, make_request(10, 3));
  EXPECT_EQ(bench.run(), 5U);
  EXPECT_FALSE(bench.loop->awaits_transfers());
  EXPECT_EQ(bench.loop->wait_s(), 0.001);
  bench.clock->now += 0.001;
  EXPECT_EQ(bench.run(), 1U);
  EXPECT_EQ(bench.loop->wait_s(), 0.001);
  bench.loop->note_change();
  EXPECT_EQ(bench.run(), 1U) << "a change may help";
  bench.connector.matches[RequestId{8}] = {.num_tokens = 0};
  bench.add(8, make_request(10, 3, 60));
  EXPECT_EQ(bench.run(), GetParam() ? 9U : 8U) << "the idle steps after a request count from the first";
  bench.connector.answer = {.num_tokens = 0};
  bench.clock->now += 0.001;
  bench.run();
  EXPECT_EQ(bench.sink.wait(RequestId{7}).tokens.size(), 3U);
  bench.loop->check_all_free();
}

TEST_P(TransferTest, WaitsForThePinOrTheTransferThatIsDueFirst) {
  for (const double due_s : {5.0, 1.5}) {
    TransferBench bench(GetParam(), 40, 0, SchedulingPolicy::continuum);
    bench.connector.keeps_blocks = {RequestId{8}};
    bench.worker->due_s = due_s;
    EngineRequest request = make_request(10, 3);
    request.tags.job = "job";
    request.tags.tool = "ls";
    bench.add(7, request);
    bench.add(8, make_request(10, 3, 60));
    bench.run();
    EXPECT_EQ(bench.loop->stats().num_pinned, 1U);
    EXPECT_EQ(bench.loop->wait_s(), std::min(2.0, due_s));
    bench.clock->now = 3.0;
    EXPECT_EQ(bench.loop->wait_s(), 0.0) << "one of both is overdue";
    bench.worker->sent = {RequestId{8}};
    bench.run();
    EXPECT_EQ(bench.loop->stats().num_pinned, 0U);
    bench.loop->check_all_free();
  }
}

TEST_P(TransferTest, SiblingsThatAreNotForkedYetCountAsWaiting) {
  TransferBench bench(GetParam());
  bench.add_loading_siblings();
  EXPECT_EQ(bench.loop->stats().num_waiting, 3U);
  EXPECT_EQ(bench.loop->stats().num_running, 0U);
  EXPECT_EQ(bench.loop->abort_all(), 3U);
  EXPECT_EQ(bench.loop->stats().num_waiting, 0U);
  bench.worker->received = {RequestId{7}};
  bench.clock->now = 5.0;
  bench.run();
  bench.loop->check_all_free();
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

// The blocks of a transfer are in use, so the cache cannot be cleared before it ends.
TEST_P(TransferTest, APauseIsAnsweredWhenTheTransfersHaveEnded) {
  for (const bool clear_cache : {true, false}) {
    TransferBench bench(GetParam());
    Controls controls(*bench.loop);
    bench.connector.keeps_blocks = {RequestId{7}};
    bench.worker->due_s = 5.0;
    bench.add(7, make_request(10, 3));
    bench.run();
    std::vector<bool> answers;
    const auto note = [&answers](const Result<bool>& answer) { answers.push_back(answer.value()); };
    EXPECT_FALSE(controls.is_paused());
    controls.take({PauseOptions{.mode = PauseMode::wait, .clear_cache = clear_cache}, note});
    EXPECT_TRUE(controls.is_paused());
    bench.run();
    controls.settle();
    controls.answer();
    EXPECT_TRUE(answers.empty());
    bench.clock->now = 5.0;
    bench.worker->sent = {RequestId{7}};
    bench.run();
    EXPECT_EQ(bench.loop->stats().num_cached_blocks, 3U);
    controls.settle();
    EXPECT_TRUE(answers.empty()) << "outputs are delivered first";
    controls.answer();
    EXPECT_EQ(answers, (std::vector<bool>{true}));
    EXPECT_EQ(bench.loop->stats().num_cached_blocks, clear_cache ? 0U : 3U);
    controls.settle();
    controls.answer();
    EXPECT_EQ(answers.size(), 1U);
    bench.loop->check_all_free();
  }
}

TEST_P(TransferTest, AResumeAnswersTheWaitingPausesFirst) {
  TransferBench bench(GetParam());
  Controls controls(*bench.loop);
  bench.connector.keeps_blocks = {RequestId{7}};
  bench.worker->due_s = 5.0;
  bench.add(7, make_request(10, 3));
  bench.run();
  std::vector<bool> answers;
  const auto note = [&answers](const Result<bool>& answer) { answers.push_back(answer.value()); };
  controls.take({PauseOptions{.mode = PauseMode::keep}, note});
  controls.take({PauseOptions{.mode = PauseMode::wait}, note});
  controls.take({ResumeOptions{}, note});
  EXPECT_FALSE(controls.is_paused());
  controls.answer();
  EXPECT_EQ(answers, (std::vector<bool>{false, false, true}));
  bench.add(8, make_request(10, 3, 60));
  bench.run();
  EXPECT_EQ(bench.sink.num_tokens(RequestId{8}), 3U) << "new requests run again";
  controls.take({CacheResetOptions{}, note});
  controls.take({EncoderResetOptions{}, note});
  controls.answer();
  EXPECT_EQ(answers.size(), 5U);
  EXPECT_FALSE(answers[3]) << "the transfer holds blocks";
  EXPECT_FALSE(answers[4]) << "the model supports no images";
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
