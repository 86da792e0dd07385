// Tests how an engine is assembled: its sinks, trace, journal and curve, the limits of its queue, and its statistics while it waits.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "engine/paused_engine.h"
#include "engine/recording_tier.h"
#include "engine/trace/trace_folder.h"
#include "quire/engine_builder.h"
#include "quire/journal.h"
#include "support/pipe.h"

namespace quire {
namespace {

using test::RecordingTier;
using test::start_with_tiers;

void answer_one(Engine& engine) {
  Collector sink;
  const EngineRequest request = make_request(20, 4);
  expect_equal(sink.wait(engine.submit(request, sink).value()), expected(request));
}

class StepCounter final : public EventSink {
 public:
  void on_event(const Event& event) override { num_steps += event.what == EventKind::step_begins ? 1 : 0; }
  std::uint32_t num_steps = 0;
};

TEST(EngineSinks, GetEventsAloneOrWithOthers) {
  for (const std::uint32_t curve_blocks : {0U, 1U})
    for (const std::uint32_t explained : {0U, 1U})
      for (const bool traces : {false, true}) {
        TraceFolder folder;
        const auto counter = std::make_shared<StepCounter>();
        quire::Setup setup;
        setup.options.curve_blocks = curve_blocks;
        setup.options.explained_requests = explained;
        if (traces) setup.options.trace.path = folder.file("run");
        for (const bool counts : {false, true}) {
          setup.seams.events = counts ? counter : nullptr;
          const auto engine = start(kModes[0], setup);
          answer_one(*engine);
          std::promise<bool> explains, has_curve;
          engine->explain("", [&](const auto& answer) { explains.set_value(answer.has_value()); });
          engine->cache_curve(std::nullopt, [&](const auto& answer) { has_curve.set_value(answer.has_value()); });
          EXPECT_EQ(explains.get_future().get(), explained > 0);
          EXPECT_EQ(has_curve.get_future().get(), curve_blocks > 0);
        }
        EXPECT_NE(folder.text("run.steps.jsonl").empty(), traces);
        EXPECT_GE(counter->num_steps, 4U);
      }
}

TEST(EngineCalls, SayWhichOptionTheyNeed) {
  EngineOptions off;
  off.curve_blocks = off.explained_requests = 0;
  off.journal.memory_bytes = 0;
  EngineOptions uncached, last_first;
  uncached.cache.enable_prefix_caching = false;
  last_first.cache.lifo_free_blocks = true;
  const auto curve = [](const EngineOptions& options) {
    std::promise<std::string> text;
    start(kModes[0], {.options = options})->cache_curve(std::nullopt, [&](const auto& answer) {
      text.set_value(answer.error().to_string());
    });
    return text.get_future().get();
  };
  EXPECT_EQ(curve(off), "curve_blocks: is 0, so no block is sampled; start the server with --curve-blocks 131072");
  EXPECT_EQ(curve(uncached),
            "enable_prefix_caching: is off, so the hit rate is 0 for every cache size; start the server with --enable-prefix-caching");
  EXPECT_EQ(curve(last_first),
            "lifo_free_blocks: is on, and the eviction order then depends on the cache size; start the server without --kv-lifo");
  const auto engine = start(kModes[0], {.options = off});
  engine->save_journal([](const Result<SavedJournal>& saved) {
    EXPECT_EQ(saved.error().to_string(),
              "journal_memory: is 0, so no journal is kept in memory; start the server with --journal-memory 32MiB");
  });
  const std::string no_adapters = "adapter: is set, but this engine does not serve adapters; start the server with --enable-lora";
  EXPECT_EQ(engine->load_adapter("a", "/a").error().to_string(), no_adapters);
  EXPECT_EQ(engine->unload_adapter("a").error().to_string(), no_adapters);
  EXPECT_EQ(engine->lease_adapter("a", true).error().to_string(), no_adapters);
  EXPECT_EQ(engine->lease_adapter("a", false).error().to_string(), no_adapters);
  EXPECT_TRUE(engine->adapters().empty());
  EXPECT_EQ(engine->stats().adapters, std::nullopt);
  EngineRequest request = make_request(20, 4);
  request.adapter = "a";
  Collector sink;
  EXPECT_EQ(engine->submit(request, sink).error().to_string(), no_adapters);
  engine->probe(request, [&](const Result<EngineProbe>& found) { EXPECT_EQ(found.error().to_string(), no_adapters); });
}

struct TracedTiers {
  std::vector<std::shared_ptr<RecordingTier>> tiers;
  bool has_connector = false, has_named = false;
};

std::string traced_steps(const TracedTiers& traced) {
  TraceFolder folder;
  quire::Setup setup;
  setup.options.trace.path = folder.file("run");
  if (traced.has_named) setup.seams.choice.connectors = {{.name = "Mine"}};
  const auto other = std::make_shared<RecordingTier>();
  if (traced.tiers.empty() && (traced.has_connector || traced.has_named)) {
    setup.seams.connector = KvTier::connector_of(other);
    setup.seams.transport = KvTier::transport_of(other);
  }
  answer_one(*start_with_tiers(traced.tiers, setup));
  return folder.text("run.steps.jsonl");
}

std::shared_ptr<RecordingTier> tier_named(const char* name, bool builtin = true, bool has_blocks = true) {
  auto tier = std::make_shared<RecordingTier>();
  tier->numbers = {.name = name, .num_places = 9, .num_used_slots = 5, .num_unread_slots = 1};
  tier->builtin = builtin;
  tier->has_blocks = has_blocks;
  return tier;
}

TEST(EngineTrace, NamesTheTiersAndConnectors) {
  struct Case {
    const char* name;  // as JSON
    TracedTiers traced;
  };
  for (const Case& c :
       {Case{"null", {}}, Case{"\"connector\"", {.tiers = {}, .has_connector = true}}, Case{"\"dram\"", {.tiers = {tier_named("dram")}}},
        Case{"\"dram+disk\"", {.tiers = {tier_named("dram"), tier_named("disk")}}},
        Case{"\"disk+connector\"", {.tiers = {tier_named("disk"), tier_named("Mine", false)}, .has_named = true}},
        Case{"\"connector\"", {.tiers = {tier_named("Mine", false)}, .has_named = true}}}) {
    const std::string steps = traced_steps(c.traced);
    EXPECT_NE(steps.find("\"event\":\"prefix_cache_lookup\""), std::string::npos) << steps;
    EXPECT_NE(steps.find(std::string("\"connector\":") + c.name + ",\"load_kv_async\""), std::string::npos) << c.name << " in " << steps;
  }
}

TEST(EngineTrace, CountsTheSlotsOfTheFirstTierThatHoldsBlocks) {
  const auto remote = tier_named("remote", true, false), dram = tier_named("dram"), disk = tier_named("disk");
  remote->numbers.num_places = disk->numbers.num_places = 100;
  const std::string steps = traced_steps({.tiers = {remote, dram, disk}});
  EXPECT_NE(steps.find("\"cpu_free_blocks\":3,\"cpu_total_blocks\":9,\"cpu_cached_blocks\":5"), std::string::npos) << steps;
  const std::string none = traced_steps({.tiers = {remote}});
  EXPECT_NE(none.find("\"cpu_free_blocks\":null,\"cpu_total_blocks\":null,\"cpu_cached_blocks\":null"), std::string::npos) << none;
}

TEST(EngineTrace, ReportsAFolderThatDoesNotExist) {
  EngineOptions options;
  options.cache.num_blocks = 20;
  options.trace.path = "/nonexistent/run";
  const ResolvedEngine resolved = resolve_options(options, simulated_model(), {1, 0}).value();
  const auto engine = make_engine(
      resolved,
      {std::make_unique<SimulatedWorker>(SimulatedWorkerOptions{.limits = resolved.limits, .num_blocks = 20, .vocab_size = kVocab})});
  ASSERT_FALSE(engine.has_value());
  EXPECT_NE(engine.error().to_string().find("/nonexistent/run"), std::string::npos) << engine.error().to_string();
}

// Loads begin early in quire's tiers, but not under the policy that decides as vLLM's connector does.
TEST(EngineJournal, RecordsWhetherLoadsBeginEarly) {
  const auto exact = [](std::shared_ptr<RecordingTier> tier) {
    tier->tier_policy = KvTierPolicy::exact;
    return tier;
  };
  struct Case {
    std::vector<std::shared_ptr<RecordingTier>> tiers;
    bool begins_early;
  };
  const Case cases[] = {{{}, false},
                        {{tier_named("dram")}, true},
                        {{exact(tier_named("dram"))}, false},
                        {{tier_named("dram"), exact(tier_named("disk"))}, false},
                        {{tier_named("Mine", false)}, false},
                        {{tier_named("dram"), exact(tier_named("Mine", false))}, true}};
  for (const Case& c : cases) {
    TraceFolder folder;
    quire::Setup setup;
    setup.options.journal = {.folder = folder.file("journal"), .memory_bytes = 0};
    answer_one(*start_with_tiers(c.tiers, setup));
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file("journal")))
      if (entry.is_regular_file() && entry.file_size() > 0) files.push_back(entry.path());
    ASSERT_EQ(files.size(), 1U);
    std::ifstream file(files[0], std::ios::binary);
    const std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
    const auto reader = JournalReader::open(bytes);
    ASSERT_TRUE(reader.has_value()) << reader.error().to_string();
    EXPECT_EQ((*reader)->header().config.fixes, engine_fixes(c.begins_early));
  }
}

TEST(EngineJournal, LogsTheFileOfAJournalInAFolder) {
  for (const bool has_folder : {false, true}) {
    TraceFolder folder;
    Pipe pipe;
    {
      quire::Setup setup;
      setup.seams.logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()});
      setup.options.journal = {.memory_bytes = 1U << 20U};
      if (has_folder) setup.options.journal.folder = folder.file("journal");
      start(kModes[0], std::move(setup))->stop(10.0);
    }
    const auto lines = pipe.lines();
    ASSERT_EQ(lines.size(), has_folder ? 3U : 2U);
    if (has_folder) EXPECT_NE(lines[0].find("info journal_begun file=" + folder.file("journal")), std::string::npos) << lines[0];
  }
}

TEST(EngineCurve, NamesTheSizesOfTheTiersThatHoldBlocks) {
  const auto small = tier_named("dram"), large = tier_named("disk");
  large->numbers.num_places = 500;
  const auto remote = tier_named("remote", true, false), named = tier_named("Mine", false);
  remote->numbers.num_places = named->numbers.num_places = 700;
  const auto engine = start_with_tiers({small, remote, named, large});
  std::promise<Result<EngineHitRateCurve>> answer;
  engine->cache_curve(std::nullopt, [&](Result<EngineHitRateCurve> curve) { answer.set_value(std::move(curve)); });
  const EngineHitRateCurve curve = answer.get_future().get().value();
  const std::vector<std::pair<std::string, std::uint64_t>> sizes = {{"now + dram + disk", 500}};
  EXPECT_EQ(curve.costs.named, sizes) << "the first tier holds fewer blocks than the cache";
  EXPECT_EQ(curve.costs.block_bytes, 16U * 2 * 2) << "16 tokens with a key and a value of two bytes";
  EXPECT_EQ(curve.curve.num_blocks, 199U);
}

// The worker's time is virtual: a prompt token takes 10 ms.
std::unique_ptr<Engine> engine_in_virtual_time(const EngineOptions& given, Gate& gate) {
  EngineOptions options = given;
  options.cache.num_blocks = 200;
  options.scheduler.async_scheduling = false;
  const ResolvedEngine resolved = resolve_options(options, simulated_model(), {1, 0}).value();
  const auto clock = std::make_shared<ManualClock>();
  SimulatedWorkerOptions worker{.limits = resolved.limits,
                                .num_blocks = 200,
                                .vocab_size = kVocab,
                                .before_step = [&gate](const StepPlan&) { gate.pass(); },
                                .clock = clock,
                                .step_time = {.prompt_token_s = 0.01, .sampled_token_s = 0.01}};
  EngineParts parts{.worker = std::make_unique<SimulatedWorker>(std::move(worker))};
  parts.seams.clock = clock;
  return make_engine(resolved, std::move(parts)).value();
}

TEST(EngineQueue, RefusesARequestWhoseFirstTokenWouldBeLate) {
  for (const bool shares_steps : {false, true}) {
    EngineOptions options;
    options.max_ttft_ms = 2500;
    options.step_time_target_ms = shares_steps ? 1000 : 0;
    Gate gate;
    const auto engine = engine_in_virtual_time(options, gate);
    Collector sink;
    gate.permits.release(1);
    sink.wait(engine->submit(make_request(100, 1), sink).value());
    const RequestId running = engine->submit(make_request(200, 2, 60), sink).value();
    gate.is_full.wait(false);
    const auto late = engine->submit(make_request(100, 1, 30), sink);
    EXPECT_EQ(late.has_value(), shares_steps) << "2 s for the prompt before it and 1 s for this one, or 2 s for both";
    if (!late) EXPECT_EQ(late.error().message, "the first token is predicted 0.5 s after the limit of 2.5 s (--max-ttft)");
    gate.open_for_good();
    sink.wait(running);
    if (late) sink.wait(*late);
    engine->stop(10.0);
  }
}

TEST(EngineQueue, CountsRequestsThatTheEngineHasNotTakenYet) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 1;
  Gate gate;
  const auto engine = start(kModes[0], {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  std::vector<RequestId> ids;
  {
    const PausedEngine paused(*engine);
    EXPECT_TRUE(engine->stats().is_paused);
    for (int i = 0; i < 40; ++i) {
      EngineRequest request = make_request(20, i == 0 ? 50 : 1, static_cast<TokenId>(3 * i));
      request.sampling.ignore_eos = true;
      ids.push_back(engine->submit(request, sink).value());
    }
  }
  gate.permits.release(2);
  sink.wait_for_tokens(ids[0], 2);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_running, 1U);
  EXPECT_EQ(stats.num_waiting, 39U);
  EXPECT_EQ(stats.num_queued_tokens, 39U * 20);
  EXPECT_FALSE(stats.is_paused);
  EXPECT_FALSE(stats.is_stopping);
  gate.open_for_good();
  for (const RequestId id : ids) sink.wait(id);
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_TRUE(engine->stats().is_stopping);
}

TEST(EngineQueue, AStopCountsEachAnswerOfARequestThatNeverBegan) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 1;
  Gate gate;
  const auto engine = start(kModes[0], {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest request = make_request(20, 230);
  request.sampling.ignore_eos = true;
  const RequestId running = engine->submit(request, sink).value();
  gate.is_full.wait(false);
  request.n = 3;
  const RequestId queued = engine->submit(request, sink).value();
  std::future<std::uint32_t> stops = std::async(std::launch::async, [&] { return engine->stop(0.0); });
  while (stops.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) gate.permits.release();
  EXPECT_EQ(stops.get(), 4U);
  EXPECT_EQ(engine->stop(0.0), 4U) << "the result of the first stop";
  EXPECT_EQ(sink.wait(running).reason, FinishReason::abort);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sink.wait(RequestId{queued.value + i}).reason, FinishReason::abort);
}

}  // namespace
}  // namespace quire
