// Watches a running engine: it answers between two steps, reports what requests wait for, and no answer changes.
#include "quire/watch.h"

#include <gtest/gtest.h>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

class WatchedEngine : public testing::TestWithParam<Mode> {
 protected:
  static Result<std::shared_ptr<WatchFrame>> look(Engine& engine, std::shared_ptr<WatchFrame> frame = std::make_shared<WatchFrame>()) {
    std::promise<Result<std::shared_ptr<WatchFrame>>> answer;
    engine.watch(std::move(frame), [&](Result<std::shared_ptr<WatchFrame>> told) { answer.set_value(std::move(told)); });
    return answer.get_future().get();
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, WatchedEngine, testing::ValuesIn(played_modes()), mode_name);

TEST_P(WatchedEngine, ReportsRunningRequestsAndWhatTheOthersWaitFor) {
  Gate gate;
  EngineOptions options;
  options.scheduler.max_num_seqs = 1;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest request = make_request(40, 30);
  const RequestId runs = engine->submit(request, sink).value();
  const RequestId waits = engine->submit(make_request(20, 5, 60), sink).value();
  gate.permits.release(4);
  sink.wait_for_tokens(runs, 1);
  std::thread opens([&] { gate.open_for_good(); });  // the engine may be within a step
  const std::shared_ptr<WatchFrame> frame = look(*engine).value();
  opens.join();
  EXPECT_EQ(frame->blocks.size(), 200U);
  for (const WatchedRequest& seen : frame->requests)
    if (seen.state == WatchedState::queued) EXPECT_EQ(seen.waits_for, EventCause::no_slot) << seen.id.value;
  expect_equal(sink.wait(runs), expected(request));
  sink.wait(waits);
  const std::shared_ptr<WatchFrame> after = look(*engine, frame).value();
  EXPECT_EQ(after, frame) << "the frame's memory is reused";
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_EQ(look(*engine).error().code, ErrorCode::shutting_down);
}

TEST_P(WatchedEngine, AnIdleEngineAnswers) {
  const auto engine = start(GetParam(), {});
  const std::shared_ptr<WatchFrame> frame = look(*engine).value();
  EXPECT_TRUE(frame->requests.empty());
  for (const WatchedBlock& block : frame->blocks) EXPECT_EQ(block, WatchedBlock{});
}

}  // namespace
}  // namespace quire
