// Tests a run in many files: each file alone and all together replay identically, budgets hold, and injected changes, truncation and kills
// are detected.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "core/journal/random_run.h"
#include "engine/journal/journal_writer.h"
#include "lab/replay/live_run.h"
#include "lab/replay/planted.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kKiB = 1024;

// Replays the run of this seed with the recorded answers of its seams, and writes files with this many bytes of calls each.
void write_run(std::uint64_t seed, const std::string& folder, std::uint64_t calls_per_file,
               std::uint64_t max_bytes = std::uint64_t{1} << 30U) {
  RecordedRun run(seed);
  SeamPlayer player(run.answers());
  const auto journal = JournalWriter::create({.folder = folder, .max_bytes = max_bytes}, run.config, player.seams(),
                                             {.calls_per_checkpoint = calls_per_file})
                           .value();
  const auto core = Core::create(run.config, journal->seams()).value();
  const std::vector<std::uint8_t> calls = run.calls();
  CoreCallReader reader(calls);
  while (reader.next().value()) reader.play(*core);
  EXPECT_TRUE(player.status().has_value());
  EXPECT_FALSE(journal->end().has_value());
}

ReplayReport expect_same_file(const std::string& path, const ReplayReport* before = nullptr) {
  auto report = replay(path, {.before = before});
  EXPECT_TRUE(report.has_value()) << path << ": " << report.error().to_string();
  if (!report) return {};
  EXPECT_FALSE(report->difference.has_value()) << path << ": " << report->difference->what << "\n" << report->difference->state;
  EXPECT_EQ(report->damage, "") << path;
  return std::move(*report);
}

// Replays each file alone, then all files as one run.
std::uint64_t expect_same_files(const std::vector<std::string>& paths, JournalEnd end = JournalEnd::stopped) {
  for (const std::string& path : paths) EXPECT_EQ(expect_same_file(path).num_checkpoints, 0U);
  std::uint64_t num_calls = 0;
  ReplayReport before;
  for (const std::string& path : paths) {
    const bool is_first = path == paths.front(), is_last = path == paths.back();
    ReplayReport report = expect_same_file(path, &before);
    EXPECT_EQ(report.end, is_last ? end : JournalEnd::continued);
    EXPECT_EQ(report.num_checkpoints, is_first ? 0U : 1U) << "the first state is compared with the end of the previous file";
    num_calls += report.num_calls;
    before = std::move(report);
  }
  return num_calls;
}

TEST(Rotation, EveryFileOfARandomRunReplaysAlone) {
  std::uint64_t num_files = 0, num_calls = 0;
  const auto num_seeds = rounds_of(60);
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder;
    write_run(seed, folder.path(), 600);
    const std::vector<std::string> paths = journals_in(folder.path());
    num_files += paths.size();
    EXPECT_FALSE(replay(paths.front())->start.has_value());
    num_calls += expect_same_files(paths);
    if (HasFailure()) return;
  }
  fmt::print("{} decisions in {} files\n", num_calls, num_files);
  EXPECT_GT(num_files, 12 * num_seeds);
}

TEST(Rotation, RunReplaysIdenticallyInOneFileAndInMany) {
  const TempFolder one, many;
  write_run(5, one.path(), 1U << 30U);
  write_run(5, many.path(), 300);
  EXPECT_EQ(journals_in(one.path()).size(), 1U);
  EXPECT_EQ(expect_same_files(journals_in(many.path())), expect_same_file(only_file(one.path())).num_calls);
}

TEST(Rotation, FindsAnInjectedChangeInItsFile) {
  const TempFolder folder, other;
  write_run(3, folder.path(), 600);
  std::uint32_t num_found = 0;
  for (const std::string& path : journals_in(folder.path())) {
    const std::string copy = other.file(fs::path(path).filename());
    EXPECT_FALSE(replay(plant(path, copy, UINT64_MAX, false).path)->difference.has_value());
    const Planted planted = plant(path, copy, 5, false);
    const ReplayReport report = replay(copy).value();
    if (planted.call == 0) continue;  // the file has fewer calls, or the call has no answer to change
    if (!report.difference) continue;
    EXPECT_EQ(report.difference->call, planted.call);
    ++num_found;
  }
  EXPECT_GT(num_found, 5U);
}

// The state at the start of a file, or before a call, is replaced by the state of another file of the run.
TEST(Rotation, FindsAReplacedState) {
  const TempFolder folder;
  write_run(7, folder.path(), 600);
  const std::vector<std::string> paths = journals_in(folder.path());
  ASSERT_GT(paths.size(), 6U);
  const auto first_bytes = bytes_of(paths[2]), other_bytes = bytes_of(paths[5]);
  const auto first = JournalReader::open(first_bytes).value(), other = JournalReader::open(other_bytes).value();
  JournalCheckpoint mixed = *first->start();
  mixed.state = other->start()->state;
  std::vector<std::uint8_t> bytes = journal_header_frame(first->header());
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, journal_checkpoint(mixed));
  write_bytes(folder.file("mixed"), bytes);
  const ReplayReport before = expect_same_file(paths[1]);
  const ReplayReport report = replay(folder.file("mixed"), {.before = &before}).value();
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_NE(report.difference->what.find("ends in another state"), std::string::npos);

  bytes = journal_header_frame(first->header());
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, journal_checkpoint(*first->start()));
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, journal_checkpoint(mixed));
  append_frame(bytes, bytes.size(), FrameKind::calls, std::vector<std::uint8_t>{14, 131, 0});
  write_bytes(folder.file("within"), bytes);
  const ReplayReport within = replay(folder.file("within")).value();
  ASSERT_TRUE(within.difference.has_value());
  EXPECT_NE(within.difference->what.find("another state of the core"), std::string::npos);
}

TEST(Rotation, TruncatedOrDamagedCheckpointIsAnError) {
  const TempFolder folder;
  write_run(3, folder.path(), 600);
  const std::vector<std::uint8_t> bytes = bytes_of(journals_in(folder.path())[1]);
  const auto reader = JournalReader::open(bytes).value();
  const std::size_t begin = journal_header_frame(reader->header()).size(), end = reader->position();
  ASSERT_GT(end, begin + 300);
  const std::string path = folder.file("other");
  for (std::size_t size = begin + kFrameHeadBytes; size < end; size += 97) {
    write_bytes(path, std::span(bytes).first(size));
    const auto report = replay(path);
    ASSERT_FALSE(report.has_value()) << size;
    EXPECT_EQ(report.error().field, "journal");
    EXPECT_NE(report.error().message.find("has no initial state of the core: the frame at byte"), std::string::npos);
  }
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint8_t> other = bytes;
    other[begin + kFrameHeadBytes + random.below(end - begin - kFrameHeadBytes)] ^= static_cast<std::uint8_t>(1U << random.below(8));
    write_bytes(path, other);
    EXPECT_FALSE(replay(path).has_value());
    // The frame's checksum is correct.
    const std::span<const std::uint8_t> payload(other.data() + begin + kFrameHeadBytes, end - begin - kFrameHeadBytes);
    std::vector<std::uint8_t> checked(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(begin));
    append_frame(checked, begin, FrameKind::checkpoint, payload);
    write_bytes(path, checked);
    const auto report = replay(path);
    if (!report) EXPECT_TRUE(report.error().field == "checkpoint" || report.error().field == "config") << report.error().to_string();
  }
}

std::uint64_t bytes_in(const std::string& folder) {
  const std::vector<std::string> paths = journals_in(folder);
  return std::accumulate(paths.begin(), paths.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const std::string& path) { return sum + fs::file_size(path); });
}

// Keeps every file that ever existed, under all names that it had.
void keep_all(const std::string& folder, const std::string& kept) {
  for (const std::string& path : journals_in(folder)) {
    std::error_code error;  // the file may have been removed
    if (path.ends_with(".qj")) fs::create_hard_link(path, kept + "/" + fs::path(path).filename().string(), error);
  }
}

TEST(Rotation, EnginesOfAnyConfigurationStayWithinTheBudget) {
  std::uint64_t num_files = 0, num_calls = 0;
  const std::uint64_t num_seeds = rounds_of(20);
  std::set<JournalEnd> ends;
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder, kept;
    const std::uint64_t max_bytes = (seed % 3 + 2) * 128 * kKiB;
    auto engine = start_random(seed, {.folder = folder.path(), .max_bytes = max_bytes});
    for (std::uint64_t round = 0; round < 8; ++round) {
      LiveRun(*engine, seed * 100 + round).play(40);
      keep_all(folder.path(), kept.path());
    }
    engine->stop(60.0);
    EXPECT_EQ(engine->stats().journal_ended, "");
    engine.reset();
    EXPECT_LE(bytes_in(folder.path()), max_bytes);
    keep_all(folder.path(), kept.path());
    const std::vector<std::string> paths = journals_in(kept.path());
    num_files += paths.size();
    ReplayReport before;
    for (const std::string& path : paths) {
      ReplayReport report = expect_same_file(path, &before);
      ends.insert(report.end);
      num_calls += report.num_calls;
      before = std::move(report);
    }
    if (HasFailure()) return;
  }
  fmt::print("{} decisions in {} files\n", num_calls, num_files);
  EXPECT_GT(num_files, num_seeds * 2);
  EXPECT_EQ(ends, (std::set<JournalEnd>{JournalEnd::stopped, JournalEnd::continued}));
}

TEST(Rotation, BudgetHoldsAtAllTimes) {
  RecordedRun run(11);
  SeamPlayer player(run.answers());
  const TempFolder folder;
  constexpr std::uint64_t kBudget = 64 * kKiB;
  const auto journal =
      JournalWriter::create({.folder = folder.path(), .max_bytes = kBudget}, run.config, player.seams(), {.calls_per_checkpoint = 500})
          .value();
  const auto core = Core::create(run.config, journal->seams()).value();
  const std::vector<std::uint8_t> calls = run.calls();
  CoreCallReader reader(calls);
  std::set<std::string> names;
  while (reader.next().value()) {
    reader.play(*core);
    journal->flush();
    names.insert(journal->path());
    ASSERT_LE(bytes_in(folder.path()), kBudget);
  }
  EXPECT_GT(names.size(), 12U);
  EXPECT_LT(journals_in(folder.path()).size(), names.size()) << "the oldest files are removed";
  EXPECT_GT(journal->num_bytes(), kBudget);
}

// If the state does not fit, the journal ends like a journal without states.
TEST(Rotation, JournalEndsAtTheBudgetWhenTheStateIsTooLarge) {
  CoreConfig config;
  config.block_size = 16;
  FullAttentionSpec spec;
  spec.block_size = 16;
  config.scheduler.max_model_len = 4096;
  config.kv = {.num_blocks = 20'000, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  const TempFolder folder;
  std::string path;
  {
    const auto journal = CoreJournal::create({.folder = folder.path(), .max_bytes = 64 * kKiB}, config, {}).value();
    const auto core = Core::create(config, journal->seams()).value();
    for (std::uint64_t id = 0; !journal->end() && id < 1000; ++id) {
      const std::vector<TokenId> prompt(1000, static_cast<TokenId>(id));
      ASSERT_TRUE(core->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = 1}).has_value());
      const SampledToken sampled[] = {{RequestId{id}, 7}};
      const StepPlan& plan = core->schedule();
      ASSERT_TRUE(core->apply({.step = plan.step, .sampled = sampled}).has_value());
      journal->flush();
    }
    EXPECT_EQ(journal->end(), JournalEnd::budget);
  }
  EXPECT_LE(bytes_in(folder.path()), 64 * kKiB);
  const ReplayReport report = expect_same_file(only_file(folder.path()));
  EXPECT_EQ(report.end, JournalEnd::budget);
  EXPECT_GT(report.num_steps, 5U);
}

// Each file of a killed process is valid up to its last frame.
TEST(Rotation, ReplaysTheFilesOfAKilledProcess) {
  std::uint64_t num_files = 0;
  for (std::uint32_t round = 0; round < 6; ++round) {
    const TempFolder folder;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto engine = start_random(round, {.folder = folder.path(), .max_bytes = 256 * kKiB});
      LiveRun(*engine, round).play(100);
      std::thread([&] { LiveRun(*engine, round + 1).play(100'000); }).detach();
      // The kill hits a file that continues another one, on a machine of any speed.
      for (int i = 0; i < 2000 && journals_in(folder.path()).size() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(37 * round));
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_LE(bytes_in(folder.path()), 256 * kKiB);
    for (const std::string& path : journals_in(folder.path())) {
      if (!path.ends_with(".qj")) continue;  // the beginning of the file was not written yet
      const auto report = replay(path);
      ASSERT_TRUE(report.has_value()) << report.error().to_string();
      EXPECT_FALSE(report->difference.has_value()) << report->difference->what;
      ++num_files;
    }
    // The next start removes files that have no final name yet.
    std::ofstream(folder.file("quire-20260101T000000.000Z-1.qj.part")) << "a beginning";
    (void)CoreJournal::create({.folder = folder.path(), .max_bytes = 256 * kKiB}, {}, {}).value();
    for (const std::string& path : journals_in(folder.path())) EXPECT_TRUE(path.ends_with(".qj")) << path;
  }
  EXPECT_GT(num_files, 6U);
}

}  // namespace
}  // namespace quire::test
