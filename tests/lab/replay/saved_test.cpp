// Tests journals that are kept in memory and saved while a run is in progress: each saved file replays identically.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
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

template <class From>
Result<SavedJournal> saved_by(From ask) {
  std::promise<Result<SavedJournal>> promise;
  ask([&](Result<SavedJournal> answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

// Replays the saved journal.
ReplayReport expect_same_saved(const Result<SavedJournal>& saved) {
  EXPECT_TRUE(saved.has_value()) << saved.error().to_string();
  if (!saved) return {};
  auto report = replay(saved->path);
  EXPECT_TRUE(report.has_value()) << report.error().to_string();
  if (!report) return {};
  if (const auto& difference = report->difference) ADD_FAILURE() << difference->what << "\n" << difference->state;
  EXPECT_EQ(report->damage, "");
  EXPECT_EQ(report->end, JournalEnd::saved);
  EXPECT_EQ(report->num_steps, saved->num_steps);
  return std::move(*report);
}

TEST(Saved, ReplaysJournalsSavedWhileAnEngineRuns) {
  std::uint64_t num_saved = 0, num_states = 0, num_begun = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder;
    const std::uint64_t memory_bytes = std::uint64_t{128 + 64 * (seed % 4)} << 10U;
    auto engine = start_random(seed, {.memory_bytes = memory_bytes, .save_folder = folder.path()});
    std::atomic<bool> is_over = false;
    std::thread client([&] {
      for (std::uint64_t round = 0; round < 4; ++round) LiveRun(*engine, seed * 10 + round).play(60);
      is_over = true;
    });
    std::vector<Result<SavedJournal>> saves;
    while (!is_over) {
      saves.push_back(saved_by([&](JournalSaveCallback answer) { engine->save_journal(std::move(answer)); }));
      EXPECT_LE(engine->stats().journal_memory_bytes, memory_bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
    }
    client.join();
    saves.push_back(saved_by([&](JournalSaveCallback answer) { engine->save_journal(std::move(answer)); }));
    engine->stop(60.0);
    saves.push_back(saved_by([&](JournalSaveCallback answer) { engine->save_journal(std::move(answer)); }));
    num_saved += saves.size();
    // The loop replays the last saved journals and some earlier ones.
    for (std::size_t i = 0; i < saves.size(); i += i + 6 < saves.size() ? 5 : 1) {
      const ReplayReport report = expect_same_saved(saves[i]);
      num_states += report.num_checkpoints;
      num_begun += report.start.has_value() ? 1 : 0;
      EXPECT_NEAR(report.recorded_s, saves[i]->covered_s, 1e-6 + (report.start ? 1.0 : 0.0));
    }
    if (HasFailure()) return;
  }
  fmt::print("{} saved, {} begin with a state, {} states within\n", num_saved, num_begun, num_states);
  EXPECT_GT(num_begun, 5U);
  EXPECT_GT(num_states, 20U);
}

// Calls arrive faster than the writer can keep them, so calls are lost; the kept part must have no gap. Every other writer sleeps long
// enough to lose calls on any machine; the remaining writers may or may not keep up.
TEST(Saved, KeepsNoCallsAcrossAGap) {
  std::uint64_t num_holes = 0, num_saved_after = 0;
  const std::uint64_t num_seeds = rounds_of(60);
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const TempFolder folder;
    RecordedRun run(seed);
    SeamPlayer player(run.answers());
    const auto journal =
        JournalWriter::create({.folder = folder.file("files"), .save_folder = folder.path()}, run.config, player.seams(),
                              {.gather_ms = seed % 2 == 0 ? 1000U : 1U, .max_waiting_bytes = 3000, .calls_per_checkpoint = 800})
            .value();
    const auto core = Core::create(run.config, journal->seams()).value();
    const std::vector<std::uint8_t> calls = run.calls();
    CoreCallReader reader(calls);
    std::uint32_t num_calls = 0;
    while (reader.next().value()) {
      reader.play(*core);
      if (++num_calls % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (num_calls % 150 != 0) continue;
      const auto saved = saved_by([&](JournalSaveCallback answer) { journal->save(std::move(answer)); });
      num_saved_after += saved && journal->end() == JournalEnd::too_slow ? 1 : 0;
      if (saved)
        expect_same_saved(saved);
      else
        EXPECT_EQ(saved.error().field, "journal_memory") << "the writer has not restarted yet";
    }
    num_holes += journal->end() == JournalEnd::too_slow ? 1 : 0;
    if (HasFailure()) return;
  }
  fmt::print("{} of {} lost something, {} times it was saved after that\n", num_holes, num_seeds, num_saved_after);
  EXPECT_GT(num_holes, num_seeds / 4) << "the test must lose calls often enough";
  EXPECT_GT(num_saved_after, num_seeds / 4) << "the test must save often enough after a gap";
}

TEST(Saved, MemoryContinuesAfterFilesEnd) {
  RecordedRun run(11);
  SeamPlayer player(run.answers());
  const TempFolder folder;
  const auto journal = JournalWriter::create({.folder = folder.file("files"), .save_folder = folder.path()}, run.config, player.seams(),
                                             {.calls_per_checkpoint = 800})
                           .value();
  const auto core = Core::create(run.config, journal->seams()).value();
  const std::vector<std::uint8_t> calls = run.calls();
  CoreCallReader reader(calls);
  while (reader.next().value()) reader.play(*core);
  const ReplayReport report = expect_same_saved(saved_by([&](JournalSaveCallback answer) { journal->save(std::move(answer)); }));
  EXPECT_FALSE(report.start.has_value()) << "the whole run fits";
  EXPECT_GT(report.num_checkpoints, 12U) << "the replay compares the states in between";
  EXPECT_GT(journals_in(folder.file("files")).size(), 12U);
}

}  // namespace
}  // namespace quire::test
