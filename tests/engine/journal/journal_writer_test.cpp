// Tests the journal file: its last frame reports why it ended, old files are removed for new ones, and every written frame is valid.
#include "engine/journal/journal_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "engine/journal/file_size_limit.h"
#include "engine/simulated_engine.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

std::vector<std::string> journals_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

struct Found {
  std::uint64_t num_calls = 0;
  JournalEnd end{};
  std::string damage;
};

Found read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto reader = JournalReader::open(bytes);
  EXPECT_TRUE(reader.has_value()) << reader.error().to_string();
  if (!reader) return {};
  Found found;
  while ((*reader)->next()) ++found.num_calls;
  return {found.num_calls, (*reader)->end(), (*reader)->damage()};
}

// Reports calls like a core does.
void report_calls(CoreJournal& journal, std::uint64_t count, std::size_t num_tokens = 50'000) {
  CallSink& calls = *journal.seams().calls;
  const std::vector<TokenId> prompt(num_tokens, 7);
  for (std::uint64_t i = 0; i < count; ++i) {
    calls.on_call(core_call::Add{{.id = RequestId{i}, .prompt = prompt}});
    calls.answered(0);
  }
}

bool wait_for_end(const CoreJournal& journal) {
  for (int i = 0; i < 20'000 && !journal.end(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return journal.end().has_value();
}

TEST(JournalWriter, WritesTheReportedCalls) {
  const TempFolder folder;
  std::string path;
  {
    const auto journal = CoreJournal::create({.folder = folder.file("new/one")}, {}, {}).value();
    path = journal->path();
    report_calls(*journal, 30);
    EXPECT_FALSE(journal->end().has_value());
  }
  const Found found = read(path);
  EXPECT_EQ(found.num_calls, 30U);
  EXPECT_EQ(found.end, JournalEnd::stopped);
  EXPECT_EQ(found.damage, "");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write) << "only the owner may read the tokens";
}

TEST(JournalWriter, FlushedCallsAreOnDisk) {
  const TempFolder folder;
  const auto journal = CoreJournal::create({.folder = folder.path()}, {}, {}).value();
  for (std::uint64_t count = 1; count <= 20; ++count) {
    report_calls(*journal, 1);
    journal->flush();
    EXPECT_EQ(read(journal->path()).num_calls, count);
  }
  journal->flush();
  EXPECT_EQ(fs::file_size(journal->path()), journal->num_bytes());
  const Found found = read(journal->path());
  EXPECT_EQ(found.end, JournalEnd::cut);
  EXPECT_EQ(found.damage, "");
}

TEST(JournalWriter, EndsAtItsBudget) {
  const TempFolder folder;
  const auto journal = CoreJournal::create({.folder = folder.path(), .max_bytes = 4 * kMiB}, {}, {}).value();
  for (int i = 0; i < 100 && !journal->end(); ++i) {
    report_calls(*journal, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  ASSERT_TRUE(wait_for_end(*journal));
  EXPECT_EQ(journal->end(), JournalEnd::budget);
  const std::uint64_t size = journal->num_bytes();
  report_calls(*journal, 4);
  EXPECT_EQ(journal->num_bytes(), size);
  const Found found = read(journal->path());
  EXPECT_EQ(found.end, JournalEnd::budget);
  EXPECT_EQ(found.damage, "");
  EXPECT_GT(found.num_calls, 0U);
  EXPECT_LE(fs::file_size(journal->path()), 4 * kMiB);
}

TEST(JournalWriter, RemovesTheOldestFilesFirst) {
  const TempFolder folder;
  std::ofstream(folder.file("another.qj")) << "is not ours";
  std::vector<std::string> paths;
  for (int i = 0; i < 5; ++i) {
    const auto journal = CoreJournal::create({.folder = folder.path(), .max_bytes = 3 * kMiB}, {}, {}).value();
    paths.push_back(journal->path());
    report_calls(*journal, 20);  // a MiB of calls
  }
  EXPECT_FALSE(fs::exists(paths[0]));
  EXPECT_FALSE(fs::exists(paths[1]));
  EXPECT_TRUE(fs::exists(paths[3]));
  EXPECT_EQ(read(paths[4]).num_calls, 20U);
  EXPECT_TRUE(fs::exists(folder.file("another.qj")));
}

TEST(JournalWriter, KeepsFilesThatAnotherWriterHasOpen) {
  const TempFolder folder;
  const auto first = CoreJournal::create({.folder = folder.path()}, {}, {}).value();
  report_calls(*first, 40);
  const auto second = CoreJournal::create({.folder = folder.path(), .max_bytes = kMiB}, {}, {}).value();
  EXPECT_NE(first->path(), second->path());
  report_calls(*second, 40);
  EXPECT_TRUE(wait_for_end(*second));
  EXPECT_TRUE(fs::exists(first->path()));
}

TEST(JournalWriter, EndsWhenTheDiskIsTooSlow) {
  const TempFolder folder;
  const auto journal = JournalWriter::create({.folder = folder.path()}, {}, {}, {.gather_ms = 500, .max_waiting_bytes = 200'000}).value();
  report_calls(*journal, 10);
  ASSERT_TRUE(wait_for_end(*journal));
  EXPECT_EQ(journal->end(), JournalEnd::too_slow);
  const Found found = read(journal->path());
  EXPECT_EQ(found.end, JournalEnd::too_slow);
  EXPECT_GT(found.num_calls, 0U);
  EXPECT_LT(found.num_calls, 10U);
}

TEST(JournalWriter, EndsWithAReasonWhenTheDiskIsFull) {
  const TempFolder folder;
  const auto journal = CoreJournal::create({.folder = folder.path()}, {}, {}).value();
  {
    const FileSizeLimit limit(8 * kMiB);
    for (int i = 0; i < 200 && !journal->end(); ++i) {
      report_calls(*journal, 10);
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    EXPECT_TRUE(wait_for_end(*journal));
  }
  EXPECT_EQ(journal->end(), JournalEnd::disk);
  const Found found = read(journal->path());
  EXPECT_EQ(found.end, JournalEnd::disk);
  EXPECT_EQ(found.damage, "");
  EXPECT_GT(found.num_calls, 0U);
}

TEST(JournalWriter, ReportsAnInvalidFolderAtTheStart) {
  const TempFolder folder;
  std::ofstream(folder.file("file")) << "text";
  EXPECT_EQ(CoreJournal::create({.folder = folder.file("file")}, {}, {}).error().field, "journal");
  EXPECT_EQ(CoreJournal::create({.folder = folder.path(), .max_bytes = 1000}, {}, {}).error().field, "journal_max_bytes");
  EXPECT_TRUE(journals_in(folder.path()).size() == 1) << "no new file exists";
}

// No second file fits next to one with the state of so many blocks, so the journal ends at its budget.
TEST(JournalWriter, AnEngineContinuesAfterItsJournalEnds) {
  constexpr std::uint64_t kBudget = kMiB / 16;
  const TempFolder folder;
  EngineOptions options;
  options.journal = {.folder = folder.path(), .max_bytes = kBudget};
  options.cache.num_blocks = 8000;
  Collector sink;
  const auto engine = start(kModes[1], {.options = options});
  Random random(1);
  std::uint32_t num_requests = 0;
  for (; num_requests < 5000 && engine->stats().journal_ended.empty(); ++num_requests) {
    const EngineRequest request = random_request(random);
    expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
  }
  EXPECT_EQ(engine->stats().journal_ended, "budget") << num_requests;
  EXPECT_GT(engine->stats().journal_bytes, kBudget / 2);
  EXPECT_LE(engine->stats().journal_bytes, kBudget);
  const EngineRequest request = make_request(5, 30);
  expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
}

}  // namespace
}  // namespace quire::test
