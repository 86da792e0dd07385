// Tests the journal in memory: it keeps the newest whole parts within its byte limit, and a saved ring is a valid journal.
#include "engine/journal/journal_ring.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <vector>

#include "base/random.h"
#include "engine/journal/journal_writer.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::uint8_t>;

struct Held {
  std::vector<Bytes> states;
  Bytes all;  // states and calls in order
  bool begins_with_state = false;
};

Held held_by(const JournalRing& ring) {
  Held held;
  bool is_first = true;
  ring.visit([&](FrameKind kind, std::span<const std::uint8_t> payload) {
    if (kind == FrameKind::checkpoint) held.states.emplace_back(payload.begin(), payload.end());
    if (is_first) held.begins_with_state = kind == FrameKind::checkpoint;
    is_first = false;
    held.all.insert(held.all.end(), payload.begin(), payload.end());
  });
  return held;
}

Bytes random_bytes(Random& random, std::size_t most) {
  Bytes bytes(1 + random.below(most));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

TEST(JournalRing, KeepsTheNewestWholePartsWithinItsBytes) {
  std::uint64_t num_empty = 0, num_several = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::uint64_t max_bytes = 4000 + random.below(20'000);
    JournalRing ring(max_bytes);
    Bytes reported;  // since the last lost part
    std::uint64_t num_reported = 0;
    for (int i = 0; i < 400; ++i) {
      if (random.chance(0.03)) {
        const Bytes state = random_bytes(random, 1500);
        if (ring.empty()) reported.clear();
        ring.begin({.num_calls = ++num_reported}, state);
        reported.insert(reported.end(), state.begin(), state.end());
      } else if (random.chance(0.003)) {
        ring.lose();
        EXPECT_TRUE(ring.empty());
      } else {
        const Bytes calls = random_bytes(random, random.chance(0.02) ? 6000 : 300);
        if (!ring.empty()) reported.insert(reported.end(), calls.begin(), calls.end());
        ring.append(calls);
      }
      ASSERT_LE(ring.num_bytes(), max_bytes);
      const Held held = held_by(ring);
      ASSERT_LE(held.all.size(), ring.num_bytes());
      num_empty += ring.empty() ? 1 : 0;
      num_several += held.states.size() > 1 ? 1 : 0;
      if (ring.empty()) continue;
      // The ring holds the end of the reported bytes from a state on, or all of them.
      ASSERT_LE(held.all.size(), reported.size());
      ASSERT_TRUE(std::equal(held.all.rbegin(), held.all.rend(), reported.rbegin())) << "seed " << seed << ", " << i;
      ASSERT_TRUE(held.begins_with_state || held.all.size() == reported.size());
    }
  }
  EXPECT_GT(num_empty, 100U);
  EXPECT_GT(num_several, 10'000U);
}

TEST(JournalRing, ReportsTheProgressOfTheCoreAtItsStart) {
  JournalRing ring(3000);
  EXPECT_EQ(ring.first(), JournalProgress{});
  for (std::uint64_t part = 1; part < 20; ++part) {
    ring.begin({.num_calls = part * 10, .num_steps = part, .now_s = 0.5}, Bytes(500, 1));
    ring.append(Bytes(100, 2));
  }
  EXPECT_GT(ring.first().num_calls, 100U);
  EXPECT_EQ(ring.first().num_calls, ring.first().num_steps * 10);
}

// A state larger than the whole ring leaves the present parts as long as they fit.
TEST(JournalRing, SkipsAStateThatDoesNotFit) {
  JournalRing ring(5000);
  ring.append(Bytes(100, 2));
  ring.begin({.num_calls = 5}, Bytes(6000, 1));
  EXPECT_EQ(held_by(ring).all.size(), 100U);
  while (!ring.empty()) ring.append(Bytes(1000, 2));
  ring.append(Bytes(10, 2));
  EXPECT_EQ(ring.num_bytes(), 0U);
  ring.begin({.num_calls = 9}, Bytes(1000, 1));
  EXPECT_EQ(ring.first().num_calls, 9U);
}

Result<SavedJournal> save(CoreJournal& journal) {
  std::promise<Result<SavedJournal>> promise;
  journal.save([&](Result<SavedJournal> answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

void report_some(CoreJournal& journal, std::uint64_t count) {
  CallSink& calls = *journal.seams().calls;
  for (std::uint64_t i = 0; i < count; ++i) {
    calls.on_call(core_call::SetPauseState{PauseState::paused_new});
    calls.answered(0);
  }
}

TEST(JournalSave, WritesTheCallsReportedSoFar) {
  const TempFolder folder;
  const auto journal = CoreJournal::create({.save_folder = folder.file("new/one")}, {}, {}).value();
  EXPECT_EQ(journal->path(), "") << "no file is written";
  for (std::uint64_t count = 100; count <= 300; count += 100) {
    report_some(*journal, 100);
    const auto saved = save(*journal);
    ASSERT_TRUE(saved.has_value()) << saved.error().to_string();
    EXPECT_EQ(fs::file_size(saved->path), saved->num_bytes);
    EXPECT_EQ(fs::status(saved->path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    std::ifstream file(saved->path, std::ios::binary);
    const Bytes bytes((std::istreambuf_iterator<char>(file)), {});
    const auto reader = JournalReader::open(bytes).value();
    std::uint64_t num_calls = 0;
    while (reader->next()) ++num_calls;
    EXPECT_EQ(num_calls, count);
    EXPECT_EQ(reader->end(), JournalEnd::saved);
    EXPECT_EQ(reader->damage(), "");
  }
  EXPECT_EQ(journal->num_bytes(), 0U);
  EXPECT_GT(journal->memory_bytes(), 0U);
}

TEST(JournalSave, SurvivesLaterStarts) {
  const TempFolder folder;
  std::string path;
  for (int i = 0; i < 5; ++i) {
    const auto journal = CoreJournal::create({.folder = folder.path(), .max_bytes = std::uint64_t{64} << 10U}, {}, {}).value();
    report_some(*journal, 10'000);
    if (i == 0) path = save(*journal).value().path;
    EXPECT_TRUE(fs::exists(path)) << path;
    EXPECT_EQ(fs::path(path).parent_path(), folder.path());
  }
}

TEST(JournalSave, ReportsAnErrorWhenNothingCanBeSaved) {
  const TempFolder folder;
  const auto nowhere = CoreJournal::create({.folder = ""}, {}, {}).value();
  EXPECT_EQ(save(*nowhere).error().code, ErrorCode::unsupported);
  EXPECT_EQ(save(*nowhere).error().field, "journal_save");
  const auto without = CoreJournal::create({.folder = folder.path(), .memory_bytes = 0}, {}, {}).value();
  EXPECT_EQ(save(*without).error().field, "journal_memory");
  const auto gone = CoreJournal::create({.save_folder = folder.file("gone")}, {}, {}).value();
  fs::remove(folder.file("gone"));
  std::ofstream(folder.file("gone")) << "a file";
  EXPECT_EQ(save(*gone).error().code, ErrorCode::io);

  std::ofstream(folder.file("file")) << "text";
  EXPECT_EQ(CoreJournal::create({.save_folder = folder.file("file/below")}, {}, {}).error().field, "journal_save");
  EXPECT_EQ(CoreJournal::create({.memory_bytes = 1000}, {}, {}).error().field, "journal_memory");
  EXPECT_EQ(CoreJournal::create({.memory_bytes = 0}, {}, {}).error().field, "journal");
}

}  // namespace
}  // namespace quire::test
