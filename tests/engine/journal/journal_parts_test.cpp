// Tests the journal of a running core: files and saved journals begin with a checkpoint, cover the steps that they report, and hold no
// tokens if tokens are left out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <set>
#include <variant>
#include <vector>

#include "engine/journal/file_size_limit.h"
#include "engine/journal/journal_writer.h"
#include "quire/base/version.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// The writing thread waits this long for more calls, unless a flush, a save or a stop comes.
constexpr std::uint32_t kForever_ms = 600'000;
constexpr TokenId kPromptToken = 4321;

CoreConfig journaled_config() {
  CoreConfig config;
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_waiting = 16;
  config.scheduler.max_num_batched_tokens = 256;
  config.scheduler.max_model_len = 256;
  config.scheduler.async_scheduling = config.scheduler.reserve_full_isl = config.report.log_stats = false;
  config.limits.max_outstanding_plans = 1;
  config.kv.num_blocks = 40;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  return config;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A core with a journal, and a request that runs for 20 steps after another. The time of step i is 100 + i seconds.
struct JournaledCore {
  explicit JournaledCore(const JournalOptions& options, const JournalTuning& tuning = {})
      : journal(JournalWriter::create(options, journaled_config(), {}, tuning).value()),
        core(Core::create(journaled_config(), journal->seams()).value()) {
    add();
  }
  void add() {
    const std::vector<TokenId> prompt(40, kPromptToken);
    ASSERT_TRUE(core->add({.id = RequestId{++last_id}, .prompt = prompt, .max_tokens = 20}));
    ++num_calls;
  }
  void step(std::uint64_t count = 1) {
    for (; count > 0; --count) {
      if (num_steps > 0 && num_steps % 20 == 0) add();
      const double now = 100.0 + static_cast<double>(num_steps);
      const StepPlan& plan = core->schedule({.now = now});
      const std::vector<SampledToken> sampled = {{RequestId{last_id}, kPromptToken + 1}};
      ASSERT_TRUE(core->apply({.step = plan.step, .sampled = sampled}, {.now = now}));
      ++num_steps;
      num_calls += 2;
    }
  }
  Result<SavedJournal> save() {
    std::promise<Result<SavedJournal>> promise;
    journal->save([&](Result<SavedJournal> answer) { promise.set_value(std::move(answer)); });
    return promise.get_future().get();
  }

  std::unique_ptr<JournalWriter> journal;
  std::unique_ptr<Core> core;  // declared after the journal, which must outlive it
  std::uint64_t last_id = 0, num_steps = 0, num_calls = 0;
};

// The content of one journal file.
struct JournalPart {
  JournalHeader header;
  std::optional<JournalCheckpoint> start{};  // without the state
  std::uint64_t num_calls = 0, num_steps = 0, num_states = 0;
  double last_s = 0.0;  // time of the last plan
  std::vector<TokenId> prompt{};
  std::vector<std::string> hashes{};
  JournalEnd end{};
  std::string damage{};
};

JournalPart part_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto reader = JournalReader::open(bytes).value();
  JournalPart part{.header = reader->header()};
  if (reader->start() != nullptr) part.start = *reader->start();
  while (reader->next()) {
    ++part.num_calls;
    part.num_states += reader->checkpoint() != nullptr && reader->checkpoint() != reader->start() ? 1 : 0;
    for (const SeamAnswer& answer : reader->answers())
      if (answer.call == SeamCall::hash) part.hashes.push_back(answer.bytes);
    if (const auto* add = std::get_if<core_call::Add>(&reader->call()))
      part.prompt.assign(add->request.prompt.begin(), add->request.prompt.end());
    if (const auto* schedule = std::get_if<core_call::Schedule>(&reader->call())) {
      ++part.num_steps;
      part.last_s = schedule->input.now;
    }
  }
  part.end = reader->end();
  part.damage = reader->damage();
  return part;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

TEST(JournalParts, EachFileContinuesTheOneBefore) {
  const TempFolder folder;
  const double before_s = seconds_since_1970();
  {
    JournaledCore run({.folder = folder.path(), .memory_bytes = 0}, {.calls_per_checkpoint = 500});
    EXPECT_EQ(run.journal->num_bytes(), fs::file_size(run.journal->path())) << "the header is written";
    run.step(100);
    run.journal->flush();
    const std::vector<std::string> paths = files_of(folder.path());
    std::uint64_t num_bytes = 0;
    for (const std::string& path : paths) num_bytes += fs::file_size(path);
    EXPECT_EQ(run.journal->num_bytes(), num_bytes);
    EXPECT_EQ(run.journal->path(), paths.back());
    EXPECT_EQ(run.journal->memory_bytes(), 0U);
  }
  const std::vector<std::string> paths = files_of(folder.path());
  ASSERT_GT(paths.size(), 3U);
  const double run_start_s = part_of(paths[0]).header.start_time_s;
  EXPECT_GE(run_start_s, before_s);
  double last_start_s = 0.0;
  std::uint64_t num_calls = 0, num_steps = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    SCOPED_TRACE(i);
    const JournalPart part = part_of(paths[i]);
    EXPECT_EQ(part.damage, "");
    EXPECT_EQ(part.end, i + 1 < paths.size() ? JournalEnd::continued : JournalEnd::stopped);
    EXPECT_GT(part.header.start_time_s, last_start_s);
    EXPECT_LE(part.header.start_time_s, seconds_since_1970());
    last_start_s = part.header.start_time_s;
    ASSERT_EQ(part.start.has_value(), i > 0);
    if (part.start) {
      EXPECT_EQ(part.start->number, i);
      EXPECT_EQ(part.start->run_start_s, run_start_s);
      EXPECT_EQ(part.start->progress.num_calls, num_calls);
      EXPECT_EQ(part.start->progress.num_steps, num_steps);
    }
    num_calls += part.num_calls;
    num_steps += part.num_steps;
  }
  EXPECT_EQ(num_steps, 100U);
  EXPECT_EQ(num_calls, 205U) << "a request is added every 20 steps";
}

TEST(JournalParts, TheHeaderDescribesTheRun) {
  const TempFolder folder;
  const JournaledCore run({.folder = folder.path()});
  const JournalPart part = part_of(run.journal->path());
  EXPECT_EQ(part.header.quire_version, kVersion);
  EXPECT_EQ(part.header.decision_profile, kDecisionProfile);
  EXPECT_EQ(part.header.config.kv.num_blocks, 40U);
  EXPECT_FALSE(part.header.seams.has_hash);
  EXPECT_FALSE(part.header.seams.omits_tokens);
}

// An eighth of the budget is calls. The memory needs checkpoints too, but they begin no file.
TEST(JournalParts, AFileTakesItsShareOfTheBudget) {
  for (const std::uint64_t memory_bytes : {0U, 65'536U}) {
    SCOPED_TRACE(memory_bytes);
    const TempFolder small, large;
    JournaledCore run({.folder = small.path(), .max_bytes = 262'144, .memory_bytes = memory_bytes});
    run.step(2500);
    run.journal->flush();
    EXPECT_FALSE(run.journal->end().has_value());
    const std::vector<std::string> paths = files_of(small.path());
    ASSERT_GT(paths.size(), 2U);
    for (std::size_t i = 1; i + 1 < paths.size(); ++i) {
      EXPECT_GE(fs::file_size(paths[i]), 32'768U);
      EXPECT_LE(fs::file_size(paths[i]), 40'000U);
    }
    JournaledCore other({.folder = large.path(), .memory_bytes = memory_bytes});
    other.step(1000);
    other.journal->flush();
    EXPECT_EQ(files_of(large.path()).size(), 1U);
    if (memory_bytes > 0) EXPECT_GT(part_of(other.save().value().path).num_states, 1U);
  }
}

TEST(JournalParts, CallsPerCheckpointGrowWithTheCheckpointAsLongAsTwoFilesFit) {
  struct Case {
    std::uint64_t checkpoint_bytes, calls;
  };
  for (const Case& one : {Case{0, 1000}, Case{500, 1000}, Case{501, 1002}, Case{1333, 2666}, Case{1334, 2666}, Case{1500, 2500},
                          Case{3000, 1000}, Case{2999, 1001}, Case{3500, 1000}, Case{4000, 1000}, Case{9000, 1000}})
    EXPECT_EQ(calls_per_checkpoint(8000, one.checkpoint_bytes), one.calls) << one.checkpoint_bytes;
}

TEST(JournalParts, ASaveReportsItsStepsAndTheirTime) {
  const TempFolder folder;
  JournaledCore run({.save_folder = folder.path()});
  for (const std::uint64_t num_more : {0U, 1U, 1U, 4U}) {
    run.step(num_more);
    const SavedJournal saved = run.save().value();
    EXPECT_EQ(saved.num_steps, run.num_steps);
    EXPECT_EQ(saved.covered_s, run.num_steps == 0 ? 0.0 : static_cast<double>(run.num_steps - 1));
    const JournalPart part = part_of(saved.path);
    EXPECT_EQ(part.num_steps, saved.num_steps);
    EXPECT_EQ(part.num_calls, run.num_calls);
    EXPECT_FALSE(part.start.has_value());
  }
}

TEST(JournalParts, ASavedJournalHasTheStartOfItsRun) {
  const TempFolder files, saved;
  JournaledCore run({.folder = files.path(), .save_folder = saved.path()}, {.calls_per_checkpoint = 500});
  const double run_start_s = part_of(run.journal->path()).header.start_time_s;
  run.step(100);
  run.journal->flush();
  EXPECT_GT(part_of(run.journal->path()).header.start_time_s, run_start_s) << "the header of a later file";
  const SavedJournal made = run.save().value();
  EXPECT_EQ(part_of(made.path).header.start_time_s, run_start_s);
  EXPECT_EQ(made.num_bytes, fs::file_size(made.path));
  EXPECT_EQ(fs::path(made.path).parent_path(), saved.path());
}

TEST(JournalParts, ASmallMemoryKeepsTheNewestSteps) {
  const TempFolder folder;
  JournaledCore run({.memory_bytes = 65'536, .save_folder = folder.path()});
  const double before_s = seconds_since_1970();
  run.step(1500);
  run.journal->flush();
  EXPECT_GT(run.journal->memory_bytes(), 30'000U);
  EXPECT_LE(run.journal->memory_bytes(), 65'536U);
  const SavedJournal saved = run.save().value();
  const JournalPart part = part_of(saved.path);
  EXPECT_EQ(part.damage, "");
  EXPECT_EQ(part.end, JournalEnd::saved);
  ASSERT_TRUE(part.start.has_value());
  EXPECT_GT(part.num_states, 1U) << "the oldest part can be dropped";
  EXPECT_EQ(part.start->run_start_s, part.header.start_time_s);
  EXPECT_LE(part.header.start_time_s, before_s) << "the start of the run";
  EXPECT_LT(part.num_steps, 1500U);
  EXPECT_EQ(part.num_steps, saved.num_steps);
  EXPECT_EQ(part.start->progress.num_steps + part.num_steps, 1500U);
  EXPECT_EQ(part.last_s, 1599.0);
  EXPECT_EQ(saved.covered_s, part.last_s - part.start->progress.now_s);
}

// A call without arguments takes four bytes.
TEST(JournalParts, CallsWaitUpToTheirBound) {
  for (const std::uint64_t num_calls : {100U, 101U}) {
    SCOPED_TRACE(num_calls);
    const TempFolder folder;
    const auto journal =
        JournalWriter::create({.folder = folder.path()}, {}, {}, {.gather_ms = kForever_ms, .max_waiting_bytes = 400}).value();
    CallSink& calls = *journal->seams().calls;
    for (std::uint64_t i = 0; i < num_calls; ++i) {
      calls.on_call(core_call::SetPauseState{PauseState::paused_new});
      calls.answered(0);
    }
    journal->flush();
    EXPECT_EQ(journal->end(), num_calls == 100 ? std::nullopt : std::optional(JournalEnd::too_slow));
    EXPECT_EQ(part_of(journal->path()).num_calls, 100U);
    EXPECT_EQ(journal->num_bytes(), fs::file_size(journal->path()));
    EXPECT_EQ(journal->memory_bytes() > 0, num_calls == 100) << "calls are missing, so nothing is kept in memory";
  }
}

TEST(JournalParts, MemoryBeginsAgainWithACheckpointAfterCallsWereMissed) {
  const TempFolder folder;
  JournaledCore run({.save_folder = folder.path()}, {.gather_ms = kForever_ms, .max_waiting_bytes = 20'000});
  run.step(990);
  EXPECT_EQ(run.save().error().code, ErrorCode::overloaded);
  EXPECT_EQ(run.journal->memory_bytes(), 0U);
  run.step(3);
  const JournalPart part = part_of(run.save().value().path);
  ASSERT_TRUE(part.start.has_value());
  EXPECT_EQ(part.start->progress.num_steps, 991U) << "the first step after the gap makes the checkpoint";
  EXPECT_EQ(part.num_steps, 2U);
  EXPECT_FALSE(run.journal->end().has_value()) << "there is no file";
}

// One checkpoint may always wait. Further ones wait within the bound, and a bound that is used up counts from zero after a write.
TEST(JournalParts, CheckpointsWaitUpToTheirBound) {
  for (const double num_states : {0.5, 1.5, 3.5}) {
    SCOPED_TRACE(num_states);
    const TempFolder folder;
    const std::uint64_t state_bytes = [] {
      JournaledCore run({});
      run.step(3);
      return run.core->checkpoint().size();
    }();
    const auto bound = static_cast<std::uint64_t>(num_states * static_cast<double>(state_bytes));
    JournaledCore run({.save_folder = folder.path()}, {.gather_ms = kForever_ms, .max_waiting_bytes = bound, .calls_per_checkpoint = 1});
    const auto expected = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(num_states));
    for (std::uint64_t round = 0; round < 3; ++round) {
      run.step(5);
      const SavedJournal saved = run.save().value();
      const JournalPart part = part_of(saved.path);
      EXPECT_EQ(part.num_states, expected * (round + 1));
      EXPECT_EQ(part.num_steps, run.num_steps);
    }
  }
}

TEST(JournalParts, LeavesOutTokensAndHidesHashesIfAsked) {
  std::set<std::string> hashes;
  for (const bool tokens : {true, false, false}) {
    const TempFolder folder;
    JournaledCore run({.folder = folder.path(), .tokens = tokens});
    run.step(3);
    run.journal->flush();
    const JournalPart part = part_of(run.journal->path());
    EXPECT_EQ(part.damage, "");
    EXPECT_EQ(part.prompt.size(), 40U);
    EXPECT_EQ(std::ranges::count(part.prompt, kPromptToken), tokens ? 40 : 0);
    EXPECT_EQ(part.hashes.empty(), tokens) << "a replay can hash the tokens itself";
    EXPECT_EQ(part.header.seams.omits_tokens, !tokens);
    for (const std::string& hash : part.hashes) {
      EXPECT_EQ(hash.size(), 32U);
      EXPECT_TRUE(hashes.insert(hash).second) << "two runs hide the same hash under different keys";
    }
  }
  EXPECT_GT(hashes.size(), 1U);
}

TEST(JournalParts, ReportsLimitsThatAreTooSmall) {
  const TempFolder folder;
  struct Case {
    JournalOptions options;
    const char* error;
  };
  const Case cases[] = {
      {{.folder = folder.path(), .max_bytes = 65'536}, ""},
      {{.folder = folder.path(), .max_bytes = 65'535}, "journal_max_bytes: is 65535; use at least 65536"},
      {{.max_bytes = 1}, ""},
      {{.memory_bytes = 65'536}, ""},
      {{.memory_bytes = 65'535}, "journal_memory: is 65535; use at least 65536"},
      {{.folder = folder.path(), .memory_bytes = 0}, ""},
      {{.memory_bytes = 0}, "journal: is on, but neither a folder nor memory is set; set --journal DIR or --journal-memory SIZE"}};
  for (const Case& one : cases) {
    const auto made = CoreJournal::create(one.options, {}, {});
    EXPECT_EQ(made ? "" : made.error().to_string(), one.error);
    if (!made) EXPECT_EQ(made.error().code, ErrorCode::invalid_argument);
  }
  std::ofstream(folder.file("file")) << "text";
  EXPECT_EQ(CoreJournal::create({.save_folder = folder.file("file/x")}, {}, {}).error().to_string(),
            fmt::format("journal_save: '{}' cannot be written: Not a directory; use a folder that you own", folder.file("file/x")));
}

TEST(JournalParts, ReportsAFullDiskAtTheStart) {
  const TempFolder folder;
  const FileSizeLimit full(10);
  const Error error = CoreJournal::create({.folder = folder.path()}, {}, {}).error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.field, "journal");
  EXPECT_TRUE(error.message.starts_with(fmt::format("'{}/quire-", folder.path()))) << error.message;
  EXPECT_TRUE(error.message.ends_with(".qj' cannot be written")) << error.message;
  EXPECT_EQ(error.remedy, "use a folder on a disk with free space");
}

}  // namespace
}  // namespace quire::test
