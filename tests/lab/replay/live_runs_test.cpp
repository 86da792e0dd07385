// Journals of engines that ran live, with everything at once: run again, they decide the same; and one planted change is found at its first
// effect.
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

#include "core/journal/answer_form.h"
#include "core/journal/journal_form.h"
#include "core/journal/write_call.h"
#include "engine/feature_mix.h"
#include "engine/simulated_engine.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

std::string only_file(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  EXPECT_EQ(paths.size(), 1U);
  return paths.empty() ? "" : paths.front();
}

ReplayReport expect_same(const std::string& folder) {
  auto report = replay(only_file(folder));
  EXPECT_TRUE(report.has_value()) << report.error().to_string();
  if (!report) return {};
  EXPECT_FALSE(report->difference.has_value()) << report->difference->what << "\n" << report->difference->state;
  EXPECT_EQ(report->damage, "");
  return *report;
}

EngineOptions random_options(Random& random) {
  EngineOptions options;
  options.cache.num_blocks = static_cast<std::uint32_t>(random.between(28, 60));
  options.cache.kv_cache_metrics = random.chance(0.3);
  options.cache.kv_cache_metrics_sample = 0.5;
  options.cache.count_common_prefix = random.chance(0.3);
  options.cache.lifo_free_blocks = random.chance(0.3);
  options.cache.enable_prefix_caching = random.chance(0.8);
  options.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(2, 12));
  options.scheduler.max_num_batched_tokens = static_cast<std::uint32_t>(random.between(24, 200));
  options.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
  options.scheduler.long_prefill_token_threshold = random.chance(0.4) ? 16 : 0;
  if (random.chance(0.3)) options.pressure = {.admission_watermark = 0.05, .pressure_high = 0.9, .pressure_low = 0.7};
  if (random.chance(0.5)) options.kv_swap = {.bytes = 1U << 20U, .choice = SwapChoice::always};
  return options;
}

// Requests of all kinds with what an operator may do in between; all have ended when it returns.
class LiveRun {
 public:
  LiveRun(Engine& engine, std::uint64_t seed) : engine_(engine), random_(seed) {}

  void play(int count) {
    for (int i = 0; i < count; ++i) {
      submit();
      if (random_.chance(0.15)) fork();
      if (random_.chance(0.1)) engine_.finish(some(), FinishReason::abort);
      if (random_.chance(0.03)) engine_.reset_prefix_cache({.preempt_running = random_.chance(0.5)}, [](const Result<bool>&) {});
      if (random_.chance(0.02)) {
        engine_.pause({.mode = PauseMode::keep, .clear_cache = random_.chance(0.5)}, [](const Result<bool>&) {});
        engine_.resume([](const Result<bool>&) {});
      }
      if (random_.chance(0.05)) sink_.wait_for_end(some(), 200);
    }
    // Sessions that wait for more hold blocks that others need, so some may have to be ended.
    for (const RequestId id : open_)
      if (!sink_.wait_for_end(id, 2000)) engine_.finish(id, FinishReason::abort);
    for (const RequestId id : open_) EXPECT_TRUE(sink_.wait_for_end(id, 60'000)) << "request " << id.value;
  }

 private:
  RequestId some() { return open_[random_.below(open_.size())]; }
  void submit() {
    EngineRequest request = random_request(random_);
    const bool is_search = random_.chance(0.1);
    if (random_.chance(0.2) || is_search) request.n = 2;
    if (is_search) {
      request.beam_search.emplace();
      request.sampling.max_tokens = 6;
      request.sampling.stop_token_ids = {};
    } else if (request.n == 1 && random_.chance(0.15)) {
      request.session = true;
    }
    if (engine_.options().scheduler.policy != SchedulingPolicy::fcfs) {
      request.priority = engine_.options().scheduler.policy == SchedulingPolicy::priority ? static_cast<std::int64_t>(random_.below(3)) : 0;
      if (!is_search) request.tags = {.job = fmt::format("job {}", random_.below(5)), .tool = "ls"};
    }
    const std::uint32_t n = request.n;
    const bool is_session = request.session;
    const auto id = engine_.submit(std::move(request), sink_);
    ASSERT_TRUE(id.has_value()) << id.error().to_string();
    for (std::uint32_t i = 0; i < n; ++i) open_.push_back({id->value + i});
    if (!is_session) return;
    (void)engine_.append(*id, {5, 6, 7});
    (void)engine_.append(*id, {});
  }
  // A session's child is one, too, and ends when it is told that no more will come.
  void fork() {
    const auto child = engine_.fork(some(), {}, sink_);
    if (!child) return;
    open_.push_back(*child);
    (void)engine_.append(*child, {});
  }

  Engine& engine_;
  Random random_;
  Collector sink_;
  std::vector<RequestId> open_;
};

// QUIRE_LIVE_REQUESTS: of each engine.
std::uint32_t num_live_requests() {
  const char* count = std::getenv("QUIRE_LIVE_REQUESTS");
  return count == nullptr ? 40 : static_cast<std::uint32_t>(std::strtoul(count, nullptr, 10));
}

std::unique_ptr<Engine> start_random(std::uint64_t seed, const std::string& folder) {
  Random random(seed);
  Setup setup{.options = random_options(random)};
  setup.options.journal.folder = folder;
  return start(kModes[seed % std::size(kModes)], std::move(setup));
}

TEST(LiveRuns, OfAnyConfigurationAreTheSameAgain) {
  ReplayReport all;
  std::uint64_t num_swapped = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder;
    auto engine = start_random(seed, folder.path());
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

TEST(LiveRuns, OfARealModelAreTheSameAgain) {
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
    // Sessions with an input that does not fit hold blocks that others need, so some may have to be ended.
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

std::vector<std::uint8_t> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Writes calls again, the token of one result changed.
class OtherToken final : public CallBytes {
 public:
  explicit OtherToken(std::uint64_t which) : left_(which) {}
  void apply(const StepResult& result, const StepInput& input) override {
    if (result.sampled.empty() || left_-- != 0) return CallBytes::apply(result, input);
    std::vector<SampledToken> sampled(result.sampled.begin(), result.sampled.end());
    sampled[0].token ^= 1;
    StepResult other = result;
    other.sampled = sampled;
    CallBytes::apply(other, input);
    is_changed = true;
  }
  bool is_changed = false;

 private:
  std::uint64_t left_;
};

struct Planted {
  std::string path;
  std::uint64_t call = 0;
};

// The journal with one change: a bit in the answer to its `which`-th call, or a token of its `which`-th result with tokens.
Planted plant(const std::string& from, const std::string& to, std::uint64_t which, bool of_result) {
  const std::vector<std::uint8_t> bytes = bytes_of(from);
  const auto reader = JournalReader::open(bytes).value();
  OtherToken calls(of_result ? which : UINT64_MAX);
  Planted planted{.path = to};
  std::vector<std::uint8_t> out = journal_beginning(reader->header());
  for (std::uint64_t call = 0; reader->next(); ++call) {
    calls.out.bytes.clear();
    const bool was_changed = calls.is_changed;
    reader->tell(calls);
    if (calls.is_changed != was_changed) planted.call = call;
    for (const SeamAnswer& a : reader->answers()) {
      calls.out.byte(static_cast<std::uint8_t>(kAnswerOf + static_cast<std::uint8_t>(a.call)));
      write_answer(calls.out, a.request, a.question, a.values, a.bytes);
    }
    JournalAnswer answer = reader->answer();
    const bool flips = !of_result && call == which;
    if (flips) answer.value ^= 1, planted.call = call;
    calls.out.byte(static_cast<std::uint8_t>(kPlanned + static_cast<std::uint8_t>(answer.kind)));
    if (answer.kind == JournalAnswer::Kind::answered)
      calls.out.number(answer.value);
    else if (answer.kind != JournalAnswer::Kind::refused)
      calls.out.fixed(answer.value);
    append_frame(out, out.size(), FrameKind::calls, calls.out.bytes);
  }
  std::ofstream(to, std::ios::binary).write(reinterpret_cast<const char*>(out.data()), static_cast<std::streamsize>(out.size()));
  return planted;
}

class PlantedChanges : public testing::Test {
 protected:
  void SetUp() override {
    auto engine = start_random(1, folder_.file("run"));
    LiveRun(*engine, 1).play(60);
    engine->stop(60.0);
    engine.reset();
    path_ = only_file(folder_.file("run"));
  }
  TempFolder folder_;
  std::string path_;
};

TEST_F(PlantedChanges, ACopyWithoutAnyIsTheSame) {
  const Planted copy = plant(path_, folder_.file("copy.qj"), UINT64_MAX, false);
  const ReplayReport report = replay(copy.path).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.end, JournalEnd::cut) << "it has no end";
  EXPECT_GT(report.num_calls, 100U);
}

TEST_F(PlantedChanges, AnAnswerIsFoundAtItsCall) {
  for (const std::uint64_t which : {3U, 50U, 201U}) {
    const Planted planted = plant(path_, folder_.file("other.qj"), which, false);
    const ReplayReport report = replay(planted.path).value();
    ASSERT_TRUE(report.difference.has_value());
    EXPECT_EQ(report.difference->call, planted.call);
    EXPECT_NE(report.difference->what.find("the journal has "), std::string::npos) << report.difference->what;
  }
}

TEST_F(PlantedChanges, ATokenIsFoundWhereItIsTaken) {
  for (const std::uint64_t which : {0U, 10U, 40U}) {
    const Planted planted = plant(path_, folder_.file("other.qj"), which, true);
    ASSERT_GT(planted.call, 0U);
    const ReplayReport report = replay(planted.path).value();
    ASSERT_TRUE(report.difference.has_value());
    EXPECT_EQ(report.difference->call, planted.call);
    EXPECT_EQ(report.difference->what.find("apply("), 0U) << report.difference->what;
    EXPECT_NE(report.difference->state.find("running "), std::string::npos);
    EXPECT_NE(report.difference->state.find("blocks: "), std::string::npos);
  }
}

TEST_F(PlantedChanges, AnotherConfigurationIsFoundAtItsFirstPlan) {
  const ReplayReport report =
      replay(path_, {.change_config = [](CoreConfig& config) { config.scheduler.max_num_batched_tokens = 9; }}).value();
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_LE(report.difference->step.value, 1U) << "the first prompts are longer than that";
  EXPECT_EQ(report.difference->what.find("schedule()"), 0U) << report.difference->what;
  const auto invalid = replay(path_, {.change_config = [](CoreConfig& config) { config.scheduler.max_num_seqs = 0; }});
  EXPECT_FALSE(invalid.has_value());
}

TEST_F(PlantedChanges, ACutFileIsReplayedAsFarAsItGoes) {
  const std::uint64_t size = fs::file_size(path_);
  fs::resize_file(path_, size / 2);
  const ReplayReport report = replay(path_).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.end, JournalEnd::cut);
  EXPECT_NE(report.damage, "");
}

TEST(Replay, WhatIsNoJournalIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(replay(folder.file("none")).error().code, ErrorCode::not_found);
  std::ofstream(folder.file("text")) << "text";
  EXPECT_EQ(replay(folder.file("text")).error().field, "journal");
  const std::vector<std::uint8_t> bytes = journal_beginning({.quire_version = "1", .decision_profile = "vLLM 9"});
  std::ofstream(folder.file("other")).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(replay(folder.file("other")).error().code, ErrorCode::unsupported);
}

// What a process killed in the midst of it has written is good.
TEST(Replay, OfOneThatWasKilled) {
  const TempFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto engine = start_random(6, folder.path());
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
