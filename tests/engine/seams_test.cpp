// Tests the seams that a caller may give to an engine: it checks them when it is created, and uses them.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>

#include "base/manual_clock.h"
#include "engine/simulated_engine.h"
#include "quire/engine_builder.h"
#include "support/pipe.h"
#include "support/scripted_connector.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

struct NoEncoderOutputs final : EncoderConnector {
  bool has(std::string_view /*identifier*/) override { return false; }
  void allocated(const RequestView& /*request*/, std::uint32_t /*index*/) override {}
};

// Claims capabilities that no worker has yet.
class AbleWorker final : public SimulatedWorker {
 public:
  AbleWorker(SimulatedWorkerOptions options, WorkerCapabilities capabilities)
      : SimulatedWorker(std::move(options)), capabilities_(capabilities) {}
  [[nodiscard]] WorkerCapabilities capabilities() const override { return capabilities_; }

 private:
  WorkerCapabilities capabilities_;
};

ResolvedEngine seams_engine(const ModelInfo& model = simulated_model()) {
  EngineOptions options;
  options.cache.num_blocks = 50;
  return resolve_options(options, model, {1, 0}).value();
}

// Returns the seam that the error names; empty if the engine was created.
std::string refused(const EngineSeams& seams, const WorkerCapabilities& worker, const ModelInfo& model = simulated_model()) {
  const ResolvedEngine resolved = seams_engine(model);
  SimulatedWorkerOptions simulated{.limits = resolved.limits,
                                   .block_size = resolved.options.cache.block_size,
                                   .num_blocks = resolved.options.cache.num_blocks,
                                   .vocab_size = kVocab};
  const auto engine = make_engine(resolved, {std::make_unique<AbleWorker>(std::move(simulated), worker), seams});
  return engine ? "" : engine.error().field;
}

TEST(EngineSeamsTest, AConnectorRequiresATransportAndAWorkerThatSupportsIt) {
  const auto tier = std::make_shared<test::ToyTier>(test::ToyOptions{});
  EXPECT_EQ(refused({.connector = tier}, {.transfers = true}), "transport");
  EXPECT_EQ(refused({.transport = tier}, {.transfers = true}), "connector");
  EXPECT_EQ(refused({.connector = tier, .transport = tier}, {.transfers = false}), "transport");
  EXPECT_EQ(refused({.connector = tier, .transport = tier}, {.transfers = true}), "");
}

TEST(EngineSeamsTest, AConnectorMustSupportWindowsWhenTheModelHasThem) {
  const auto connector = std::make_shared<test::ScriptedConnector>();
  const auto tier = std::make_shared<test::ToyTier>(test::ToyOptions{});
  ModelInfo model = simulated_model();
  for (const std::vector<std::uint32_t>& windows : {std::vector{8U}, std::vector{0U, 8U}}) {
    model.num_layers = static_cast<std::uint32_t>(windows.size());
    model.sliding_windows = windows;
    EXPECT_EQ(refused({.connector = connector, .transport = tier}, {.num_cache_groups = 2, .transfers = true}, model), "connector");
    EXPECT_EQ(refused({.connector = tier, .transport = tier}, {.num_cache_groups = 2, .transfers = true}, model), "");
    EXPECT_EQ(refused({}, {.num_cache_groups = 2, .transfers = true}, model), "");
  }
}

TEST(EngineSeamsTest, RefusesSeamsThatTheWorkerDoesNotSupport) {
  const auto encoder = std::make_shared<NoEncoderOutputs>();
  EXPECT_EQ(refused({.encoder_connector = encoder}, {}), "encoder_connector");
  EXPECT_EQ(refused({.encoder_connector = encoder}, {.encoder_inputs = true}), "");
}

TEST(EngineBuilderTest, ReportsThePathOfAMissingModel) {
  EngineOptions options;
  options.model = "/nonexistent.gguf";
  const auto engine = EngineBuilder(options).clock(std::make_shared<ManualClock>()).build();
  ASSERT_FALSE(engine.has_value());
  EXPECT_NE(engine.error().to_string().find("/nonexistent.gguf"), std::string::npos);
}

class CountingEvents final : public EventSink {
 public:
  void on_event(const Event& event) override { ++count[event.what]; }
  std::map<EventKind, std::uint32_t> count;
};

TEST(EngineSeamsTest, EventsReachTheGivenSink) {
  const auto events = std::make_shared<CountingEvents>();
  Collector sink;
  const auto engine = start(kModes[0], {.options = {}, .seams = {.events = events}});
  sink.wait(engine->submit(make_request(20, 4), sink).value());
  engine->stop(10.0);
  EXPECT_GE(events->count[EventKind::step_begins], 4U);
  EXPECT_EQ(events->count[EventKind::block_cached], 1U);
}

TEST(EngineSeamsTest, AllTimesComeFromTheGivenClock) {
  const auto clock = std::make_shared<ManualClock>(1000.0);
  Collector sink;
  const auto engine = start(kModes[1], {.options = {}, .seams = {.clock = clock}});
  sink.wait(engine->submit(make_request(20, 4), sink).value());
  engine->stop(10.0);
  const EngineStats stats = engine->stats();
  for (const HistogramSnapshot& times : {stats.time_to_first_token_s, stats.inter_token_latency_s, stats.e2e_latency_s, stats.queue_time_s,
                                         stats.step_time_s, stats.scheduler_time_s}) {
    EXPECT_GT(std::accumulate(times.counts.begin(), times.counts.end(), std::uint64_t{0}), 0U);
    EXPECT_EQ(times.sum, 0.0) << "the clock does not advance";
  }
}

TEST(EngineSeamsTest, LogsStartStopAndFailedRequests) {
  Pipe pipe;
  {
    const auto logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()});
    Collector sink;
    const auto engine = start(kModes[0], {.options = {}, .poison = 7, .seams = {.logger = logger}});
    sink.wait(engine->submit(make_request(20, 4), sink).value());
    EngineRequest poisoned = make_request(20, 4);
    poisoned.prompt.back() = 7;
    sink.wait(engine->submit(poisoned, sink).value());
    engine->stop(10.0);
  }
  const auto lines = pipe.lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("info engine_started model=simulated blocks=199"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("warning requests_failed count=1 total=1"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("info engine_stopped"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("aborted=0 transfers_left=0"), std::string::npos) << lines[2];
}

}  // namespace
}  // namespace quire
