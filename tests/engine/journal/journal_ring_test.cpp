// Tests the journal in memory: it keeps the newest whole parts within its byte limit, and a saved ring is a valid journal.
#include "engine/journal/journal_ring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <vector>

#include "base/random.h"
#include "engine/journal/file_size_limit.h"
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

// A part takes 256 bytes and its checkpoint. A list of calls takes 64 bytes and at least a 64th of the ring, 64 KiB at most.
TEST(JournalRing, CountsReservedMemoryExactly) {
  JournalRing ring(65'536);
  EXPECT_EQ(ring.num_bytes(), 256U);
  ring.append({});
  EXPECT_EQ(ring.num_bytes(), 256U) << "no calls take no memory";
  struct Case {
    std::size_t num_calls;
    std::uint64_t num_bytes;
  };
  for (const Case& one : {Case{10, 256 + 1088}, Case{1014, 256 + 1088}, Case{1, 256 + 2 * 1088}, Case{3000, 256 + 2 * 1088 + 3064}}) {
    ring.append(Bytes(one.num_calls, 1));
    EXPECT_EQ(ring.num_bytes(), one.num_bytes) << one.num_calls;
  }
  ring.begin({}, Bytes(100, 2));
  EXPECT_EQ(ring.num_bytes(), 256 + 2 * 1088 + 3064 + 356U);
  ring.lose();
  EXPECT_EQ(ring.num_bytes(), 0U);
  JournalRing large(std::uint64_t{8} << 20U);
  large.append(Bytes(1, 1));
  EXPECT_EQ(large.num_bytes(), 256U + 65'536 + 64);
}

TEST(JournalRing, FillsItsBytesToTheLast) {
  for (const std::uint64_t too_many : {0U, 1U}) {
    SCOPED_TRACE(too_many);
    JournalRing calls(5000);
    calls.append(Bytes(5000 - 256 - 64 + too_many, 1));
    EXPECT_EQ(calls.num_bytes(), too_many == 0 ? 5000U : 0U) << "calls that do not fit empty the ring";
    EXPECT_EQ(calls.empty(), too_many == 1);

    JournalRing state(5000);
    state.append(Bytes(1000, 1));
    state.begin({.num_calls = 7}, Bytes(5000 - 256 + too_many, 2));
    EXPECT_EQ(state.first().num_calls, too_many == 0 ? 7U : 0U) << "a state that does not fit leaves the part before";
    EXPECT_EQ(state.num_bytes(), too_many == 0 ? 5000U : 256U + 1064);

    JournalRing both(5000);
    both.append(Bytes(1000, 1));
    both.begin({.num_calls = 7}, Bytes(5000 - (256 + 1064) - 256 + too_many, 2));
    EXPECT_EQ(both.first().num_calls, too_many == 0 ? 0U : 7U) << "the oldest part is dropped only if both do not fit";
    EXPECT_EQ(both.num_bytes(), too_many == 0 ? 5000U : 5000U - (256 + 1064) + 1);
  }
}

// The newest part keeps its calls: only older parts make room for them.
TEST(JournalRing, DropsOlderPartsForNewCalls) {
  JournalRing ring(5000);
  for (std::uint64_t part = 1; part <= 3; ++part) ring.begin({.num_calls = part}, Bytes(1000, 1));
  EXPECT_EQ(ring.first().num_calls, 0U);
  ring.append(Bytes(2000, 2));
  EXPECT_EQ(ring.first().num_calls, 2U);
  EXPECT_EQ(ring.num_bytes(), 2 * 1256 + 2064U);
  ring.append(Bytes(1500, 2));
  EXPECT_EQ(ring.first().num_calls, 3U);
  EXPECT_EQ(ring.num_bytes(), 1256 + 2064 + 1564U);
  EXPECT_EQ(held_by(ring).all.size(), 1000U + 2000 + 1500);
  ring.append(Bytes(1500, 2));
  EXPECT_TRUE(ring.empty());
  ring.append(Bytes(1, 2));
  EXPECT_EQ(ring.num_bytes(), 0U) << "calls without a state before them are left out";
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
  EXPECT_EQ(save(*nowhere).error().to_string(),
            "journal_save: no folder is set to save journals in; start the server with --journal-save DIR or --journal DIR");
  EXPECT_EQ(save(*without).error().to_string(),
            "journal_memory: is 0, so no journal is kept in memory; start the server with --journal-memory 32MiB");

  std::ofstream(folder.file("file")) << "text";
  EXPECT_EQ(CoreJournal::create({.save_folder = folder.file("file/below")}, {}, {}).error().field, "journal_save");
  EXPECT_EQ(CoreJournal::create({.memory_bytes = 1000}, {}, {}).error().field, "journal_memory");
  EXPECT_EQ(CoreJournal::create({.memory_bytes = 0}, {}, {}).error().field, "journal");
}

// The answer to the first save keeps the writing thread busy, so the next eight wait.
TEST(JournalSave, RefusesMoreThanEightWaitingSaves) {
  const TempFolder folder;
  std::promise<void> began, go_on;
  std::vector<std::string> answers;
  {
    const auto journal = CoreJournal::create({.save_folder = folder.path()}, {}, {}).value();
    journal->save([&](const Result<SavedJournal>& /*answer*/) {
      began.set_value();
      go_on.get_future().wait();
    });
    began.get_future().wait();
    std::uint32_t num_refused = 0;
    for (int i = 0; i < 10; ++i) {
      journal->save([&](const Result<SavedJournal>& answer) {
        if (answer) return answers.push_back(answer->path);
        ++num_refused;
        EXPECT_EQ(answer.error().code, ErrorCode::overloaded);
        EXPECT_EQ(answer.error().to_string(), "8 journals are being saved already; try again later");
      });
    }
    EXPECT_EQ(num_refused, 2U) << "refused without waiting";
    go_on.set_value();
  }
  EXPECT_EQ(answers.size(), 8U) << "a stop answers the waiting saves";
}

TEST(JournalSave, LeavesNoFileWhenTheDiskIsFull) {
  const TempFolder folder;
  const auto journal = CoreJournal::create({.save_folder = folder.path()}, {}, {}).value();
  report_some(*journal, 3000);
  for (const std::uint64_t limit : {10U, 3000U}) {  // the header does not fit; the calls do not
    const FileSizeLimit full(limit);
    const Error error = save(*journal).error();
    EXPECT_EQ(error.code, ErrorCode::io);
    EXPECT_EQ(error.field, "journal");
    EXPECT_TRUE(error.message.starts_with(fmt::format("'{}/saved-", folder.path()))) << error.message;
    EXPECT_TRUE(error.message.ends_with("' cannot be written: the disk is full or has failed")) << error.message;
    EXPECT_EQ(error.remedy, "free space on the disk");
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
  EXPECT_TRUE(save(*journal).has_value());
}

TEST(JournalSave, ReportsAnEmptyMemory) {
  const TempFolder folder;
  const auto journal = CoreJournal::create({.memory_bytes = 65'536, .save_folder = folder.path()}, {}, {}).value();
  report_some(*journal, 100'000);  // there is no core, so no checkpoint begins another part
  const Error error = save(*journal).error();
  EXPECT_EQ(error.code, ErrorCode::overloaded);
  EXPECT_EQ(error.to_string(),
            "journal_memory: the journal in memory is empty: the scheduler state does not fit, or calls came faster than they could be "
            "recorded; try again later, or start the server with a larger --journal-memory");
  EXPECT_EQ(journal->memory_bytes(), 0U);
}

}  // namespace
}  // namespace quire::test
