// Tests journals of engines that ran live with all features combined: the replay decides the same, and finds an injected change at its
// first effect.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "engine/feature_mix.h"
#include "lab/replay/live_run.h"
#include "lab/replay/planted.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

ReplayReport expect_same(const std::string& folder) {
  auto report = replay(only_file(folder));
  EXPECT_TRUE(report.has_value()) << report.error().to_string();
  if (!report) return {};
  EXPECT_FALSE(report->difference.has_value()) << report->difference->what << "\n" << report->difference->state;
  EXPECT_EQ(report->damage, "");
  return *report;
}

// Returns the number of requests per engine: QUIRE_LIVE_REQUESTS, by default four of each kind, or two when not all rounds are run.
std::uint32_t num_live_requests() {
  const char* count = std::getenv("QUIRE_LIVE_REQUESTS");
  if (count == nullptr) return plays_all() ? 40 : 20;
  return static_cast<std::uint32_t>(std::strtoul(count, nullptr, 10));
}

TEST(LiveRuns, OfAnyConfigurationReplayIdentically) {
  ReplayReport all;
  std::uint64_t num_swapped = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder;
    auto engine = start_random(seed, {.folder = folder.path()});
    LiveRun(*engine, seed).play(60);
    engine->stop(60.0);
    const EngineStats stats = engine->stats();
    engine.reset();
    const ReplayReport report = expect_same(folder.path());
    EXPECT_EQ(report.end, JournalEnd::stopped);
    EXPECT_EQ(report.num_steps, stats.num_steps);
    EXPECT_EQ(report.num_preemptions, stats.num_preemptions);
    EXPECT_GT(report.num_tokens, 200U);
    if (stats.kv_swap) num_swapped += stats.kv_swap->num_in;
    all.num_forks += report.num_forks;
    all.num_preemptions += report.num_preemptions;
    all.num_calls += report.num_calls;
  }
  fmt::print("{} decisions, {} forks, {} preemptions, {} swapped back\n", all.num_calls, all.num_forks, all.num_preemptions, num_swapped);
  EXPECT_GT(all.num_calls, 20'000U);
  EXPECT_GT(all.num_forks, 100U);
  EXPECT_GT(all.num_preemptions, 20U);
  EXPECT_GT(num_swapped, 0U);
}

TEST(LiveRuns, OfARealModelReplayIdentically) {
  const char* real = std::getenv("QUIRE_TEST_MODEL");
  if (real == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set";
  const TempFolder models;
  const std::string windowed = write_windowed_model(models.file("windowed"));
  using enum Feature;
  const FeatureSet engines[] = {{dram, swap, async},
                                {disk, drafts},
                                {windows, dram, swap, async},
                                {continuum, swap, dram},
                                {priorities, chunks, async},
                                {drafts, async, dram, disk},
                                {windows, disk, priorities},
                                {swap, drafts, async},
                                {dram, disk, continuum, async},
                                {chunks, swap, int8}};
  const FeatureSet requests[] = {{}, {n}, {beams}, {session}, {grammar}, {tools}, {prompt_logprobs}, {pooling}, {tenant}, {fork}};
  std::uint64_t num_loads = 0, num_preemptions = 0, num_calls = 0;
  for (const FeatureSet set : engines) {
    SCOPED_TRACE(set.name());
    const TempFolder folder, tiers;
    Made made = make_options(set, set.has(windows) ? windowed : real, tiers.file("kv"));
    made.options.journal.folder = folder.path();
    auto engine = create_engine(made.options, nullptr, nullptr, made.seams);
    ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
    Collector sink;
    Random random(7);
    std::vector<RequestId> open;
    for (std::uint32_t round = 0; round < num_live_requests(); ++round) {
      const FeatureSet wanted = requests[round % std::size(requests)];
      if ((wanted.has(grammar) || wanted.has(tools)) && !has_structured_output()) continue;
      EngineRequest request = make_mixed(wanted, static_cast<std::uint32_t>(random.below(6)), 70);
      if (set.has(priorities)) request.priority = static_cast<std::int64_t>(random.below(3));
      if (set.has(continuum) && !request.beam_search) request.tags = {.job = fmt::format("job {}", round % 4), .tool = "ls"};
      const std::uint32_t count = request.n;
      const bool is_session = request.session;
      const auto id = (*engine)->submit(std::move(request), sink);
      ASSERT_TRUE(id.has_value()) << wanted.name() << ": " << id.error().to_string();
      for (std::uint32_t i = 0; i < count; ++i) open.push_back({id->value + i});
      if (is_session) {
        (void)(*engine)->append(*id, next_input(round));
        (void)(*engine)->append(*id, {});
      }
      if (wanted.has(Feature::fork))
        if (const auto child = (*engine)->fork(*id, {}, sink)) open.push_back(*child);
      if (random.chance(0.1)) (*engine)->finish(open[random.below(open.size())], FinishReason::abort);
    }
    // Sessions with an input that does not fit hold blocks that other requests need, so the test may have to abort some.
    for (const RequestId id : open)
      if (!sink.wait_for_end(id, 2000)) (*engine)->finish(id, FinishReason::abort);
    for (const RequestId id : open) EXPECT_TRUE(sink.wait_for_end(id, 60'000)) << "request " << id.value;
    (*engine)->stop(60.0);
    num_loads += (*engine)->stats().num_loads;
    engine->reset();
    const ReplayReport report = expect_same(folder.path());
    EXPECT_EQ(report.end, JournalEnd::stopped);
    num_preemptions += report.num_preemptions;
    num_calls += report.num_calls;
  }
  fmt::print("{} decisions, {} loads, {} preemptions\n", num_calls, num_loads, num_preemptions);
  EXPECT_GT(num_preemptions, 0U);
  EXPECT_GT(num_loads, 0U);
}

class PlantedChanges : public testing::Test {
 protected:
  void SetUp() override {
    auto engine = start_random(1, {.folder = folder_.file("run")});
    LiveRun(*engine, 1).play(60);
    engine->stop(60.0);
    engine.reset();
    path_ = only_file(folder_.file("run"));
  }
  TempFolder folder_;
  std::string path_;
};

TEST_F(PlantedChanges, CopyWithoutAChangeIsEqual) {
  const Planted copy = plant(path_, folder_.file("copy.qj"), UINT64_MAX, false);
  const ReplayReport report = replay(copy.path).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.end, JournalEnd::cut) << "the file has no end frame";
  EXPECT_GT(report.num_calls, 100U);
}

TEST_F(PlantedChanges, ChangedAnswerIsFoundAtItsCall) {
  for (const std::uint64_t which : {3U, 50U, 201U}) {
    const Planted planted = plant(path_, folder_.file("other.qj"), which, false);
    const ReplayReport report = replay(planted.path).value();
    ASSERT_TRUE(report.difference.has_value());
    EXPECT_EQ(report.difference->call, planted.call);
    EXPECT_NE(report.difference->what.find("the journal has "), std::string::npos) << report.difference->what;
  }
}

TEST_F(PlantedChanges, ChangedTokenIsFoundWhereItIsUsed) {
  for (const std::uint64_t first : {0U, 10U, 40U}) {
    Planted planted;
    ReplayReport report;
    // A result makes no difference if all of its requests were aborted while the step ran.
    for (std::uint64_t which = first; which < first + 5 && !report.difference; ++which) {
      planted = plant(path_, folder_.file("other.qj"), which, true);
      ASSERT_GT(planted.call, 0U);
      report = replay(planted.path).value();
    }
    ASSERT_TRUE(report.difference.has_value());
    EXPECT_EQ(report.difference->call, planted.call);
    EXPECT_EQ(report.difference->what.find("apply("), 0U) << report.difference->what;
    EXPECT_NE(report.difference->state.find("running "), std::string::npos);
    EXPECT_NE(report.difference->state.find("blocks: "), std::string::npos);
  }
}

TEST_F(PlantedChanges, ChangedConfigurationIsFoundAtItsFirstPlan) {
  const ReplayReport report =
      replay(path_, {.change_config = [](CoreConfig& config) { config.scheduler.max_num_batched_tokens = 9; }}).value();
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_LE(report.difference->step.value, 1U) << "the first prompts are longer than 9 tokens";
  EXPECT_EQ(report.difference->what.find("schedule()"), 0U) << report.difference->what;
  const auto invalid = replay(path_, {.change_config = [](CoreConfig& config) { config.scheduler.max_num_seqs = 0; }});
  EXPECT_FALSE(invalid.has_value());
}

TEST_F(PlantedChanges, TruncatedFileIsReplayedToItsEnd) {
  const std::uint64_t size = fs::file_size(path_);
  fs::resize_file(path_, size / 2);
  const ReplayReport report = replay(path_).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.end, JournalEnd::cut);
  EXPECT_NE(report.damage, "");
}

TEST(Replay, RefusesFilesThatAreNotJournals) {
  const TempFolder folder;
  EXPECT_EQ(replay(folder.file("none")).error().code, ErrorCode::not_found);
  std::ofstream(folder.file("text")) << "text";
  EXPECT_EQ(replay(folder.file("text")).error().field, "journal");
  const std::vector<std::uint8_t> bytes = journal_header_frame({.quire_version = "1", .decision_profile = "vLLM 9"});
  std::ofstream(folder.file("other")).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(replay(folder.file("other")).error().code, ErrorCode::unsupported);
}

// The journal of a killed process is valid up to its last frame.
TEST(Replay, ReplaysTheJournalOfAKilledProcess) {
  const TempFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto engine = start_random(6, {.folder = folder.path()});
    LiveRun(*engine, 6).play(40);
    std::thread([&] { LiveRun(*engine, 7).play(10'000); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  const ReplayReport report = replay(only_file(folder.path())).value();
  EXPECT_FALSE(report.difference.has_value()) << report.difference->what;
  EXPECT_EQ(report.end, JournalEnd::cut);
  EXPECT_GT(report.num_steps, 50U);
}

}  // namespace
}  // namespace quire::test
