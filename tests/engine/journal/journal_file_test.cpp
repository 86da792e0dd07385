// Tests the files of a journal folder: how much fits into the budget, which older files are deleted, and how a file continues in the next
// one.
#include "engine/journal/journal_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <vector>

#include "core/journal/journal_format.h"
#include "engine/journal/file_size_limit.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Part of the budget that stays free for the last frame.
constexpr std::uint64_t kEndRoom = 128;

using FileBytes = std::vector<std::uint8_t>;

void make_file(const std::string& path, std::size_t num_bytes) {
  std::ofstream(path) << std::string(num_bytes, 'x');
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

FileBytes header_bytes() {
  return journal_header_frame({.quire_version = "1", .decision_profile = std::string(kDecisionProfile)});
}

JournalEnd end_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const FileBytes bytes((std::istreambuf_iterator<char>(file)), {});
  const auto reader = JournalReader::open(bytes);
  EXPECT_TRUE(reader.has_value()) << path;
  if (!reader) return JournalEnd::cut;
  while ((*reader)->next()) {
  }
  EXPECT_EQ((*reader)->damage(), "");
  return (*reader)->end();
}

TEST(JournalFile, UsesItsBudgetUpToTheRoomForTheLastFrame) {
  constexpr std::uint64_t kBudget = 10'000;
  struct Case {
    std::uint64_t before, num_bytes;
    std::optional<JournalEnd> end;
  };
  for (const Case& one : {Case{0, kBudget - kEndRoom - 1, std::nullopt}, Case{0, kBudget - kEndRoom, std::nullopt},
                          Case{0, kBudget - kEndRoom + 1, JournalEnd::budget}, Case{4000, 6000 - kEndRoom, std::nullopt},
                          Case{4000, 6000 - kEndRoom + 1, JournalEnd::budget}}) {
    SCOPED_TRACE(fmt::format("{} + {}", one.before, one.num_bytes));
    const TempFolder folder;
    auto file = JournalFile::create(folder.path(), kBudget).value();
    ASSERT_EQ(file.append(FileBytes(one.before)), std::nullopt);
    EXPECT_EQ(file.append(FileBytes(one.num_bytes)), one.end);
    const std::uint64_t size = one.before + (one.end ? 0 : one.num_bytes);
    EXPECT_EQ(file.size(), size);
    EXPECT_EQ(file.total_size(), size);
    EXPECT_EQ(fs::file_size(file.path()), size);
    file.finish(JournalEnd::budget);
    EXPECT_EQ(fs::file_size(file.path()), file.size());
    EXPECT_GT(file.size(), size);
    EXPECT_LE(file.size(), kBudget) << "the last frame fits";
  }
}

TEST(JournalFile, DeletesTheOldestFilesOnlyWhenTheBudgetNeedsTheirSpace) {
  const TempFolder folder;
  const std::vector<std::string> ours = {folder.file("quire-1.qj"), folder.file("quire-2.qj"), folder.file("quire-3.qj")};
  for (std::size_t i = 0; i < ours.size(); ++i) make_file(ours[i], 1000 * (i + 1));
  const std::vector<std::string> others = {folder.file("another.qj"), folder.file("quire-notes.txt"), folder.file("saved-1.qj")};
  for (const std::string& other : others) make_file(other, 5000);
  fs::create_directory(folder.file("quire-0.qj"));
  auto file = JournalFile::create(folder.path(), 10'000).value();
  struct Case {
    std::uint64_t num_bytes;
    std::size_t num_left;
  };
  for (const Case& one :
       {Case{10'000 - kEndRoom - 6000, 3}, Case{1, 2}, Case{999, 2}, Case{1, 1}, Case{1999, 1}, Case{1, 0}, Case{2999, 0}}) {
    EXPECT_EQ(file.append(FileBytes(one.num_bytes)), std::nullopt);
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(fs::exists(ours[i]), i >= ours.size() - one.num_left) << file.size() << ours[i];
  }
  EXPECT_EQ(file.append(FileBytes(1)), JournalEnd::budget);
  for (const std::string& other : others) EXPECT_TRUE(fs::exists(other)) << other;
  EXPECT_TRUE(fs::exists(folder.file("quire-0.qj")));
}

TEST(JournalFile, RemovesUnfinishedFilesOfKilledProcesses) {
  const TempFolder folder;
  for (const char* name : {"quire-1.qj.part", "quire-2.qj.part", "other.qj.part", "quire-1.part", "quire-1.txt.part", "quire-3.qj"})
    make_file(folder.file(name), 10);
  const int open = ::open(folder.file("quire-2.qj.part").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(open, LOCK_EX | LOCK_NB), 0);
  const auto file = JournalFile::create(folder.path(), 10'000).value();
  ::close(open);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"other.qj.part", "quire-1.part", "quire-1.txt.part", "quire-2.qj.part",
                                                               fs::path(file.path()).filename(), "quire-3.qj"}));
}

TEST(JournalFile, NamesFilesByUtcTimeAndProcess) {
  const TempFolder folder;
  const auto first = JournalFile::create(folder.path(), 10'000).value();
  const auto second = JournalFile::create(folder.path(), 10'000).value();
  EXPECT_LT(first.path(), second.path()) << "names sort by time";
  const auto saved = JournalFile::create_saved(folder.path()).value();
  for (const auto& [file, prefix] : {std::pair(&first, "quire"), {&saved, "saved"}}) {
    const std::regex form(fmt::format("{}-([0-9]{{8}}T[0-9]{{6}})\\.[0-9]{{3}}Z-{}\\.qj", prefix, ::getpid()));
    const std::string name = fs::path(file->path()).filename();
    std::smatch found;
    ASSERT_TRUE(std::regex_match(name, found, form)) << name;
    std::tm time{};
    ASSERT_NE(::strptime(found[1].str().c_str(), "%Y%m%dT%H%M%S", &time), nullptr);
    EXPECT_NEAR(static_cast<double>(::timegm(&time)), static_cast<double>(std::time(nullptr)), 600.0) << name;
  }
}

TEST(JournalFile, FreesTheSpaceThatItReservedAhead) {
  const TempFolder folder;
  std::string path;
  const auto disk_bytes = [&path] {
    struct stat found{};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return static_cast<std::uint64_t>(found.st_blocks) * 512;
  };
  {
    auto file = JournalFile::create(folder.path(), 10'000'000).value();
    path = file.path();
    EXPECT_EQ(file.append(FileBytes(100)), std::nullopt);
    EXPECT_EQ(fs::file_size(path), 100U) << "the file does not grow ahead";
    if (disk_bytes() < 100'000) GTEST_SKIP() << "this file system does not reserve space";
  }
  EXPECT_EQ(fs::file_size(path), 100U);
  EXPECT_LE(disk_bytes(), 65'536U);
}

TEST(JournalFile, ContinuesInTheNextFile) {
  const TempFolder folder;
  const FileBytes header = header_bytes();
  std::vector<std::string> paths;
  std::uint64_t num_earlier = 0;
  auto file = JournalFile::create(folder.path(), 1'000'000).value();
  ASSERT_EQ(file.append(header), std::nullopt);
  for (int i = 0; i < 3; ++i) {
    paths.push_back(file.path());
    ASSERT_TRUE(file.begin_next(header));
    EXPECT_GT(file.path(), paths.back());
    EXPECT_EQ(end_of(paths.back()), JournalEnd::continued);
    EXPECT_EQ(file.size(), header.size());
    EXPECT_EQ(fs::file_size(file.path()), header.size());
    EXPECT_EQ(fs::status(file.path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    num_earlier += fs::file_size(paths.back());
    EXPECT_EQ(file.total_size(), num_earlier + header.size());
  }
  file.finish(JournalEnd::stopped);
  EXPECT_EQ(end_of(file.path()), JournalEnd::stopped);
  EXPECT_EQ(file.total_size(), num_earlier + fs::file_size(file.path()));
  EXPECT_EQ(names_in(folder.path()).size(), 4U) << "no unfinished file is left";
}

TEST(JournalFile, DeletesItsEarlierFilesWhenTheBudgetNeedsTheirSpace) {
  const TempFolder folder;
  auto file = JournalFile::create(folder.path(), 10'000).value();
  ASSERT_EQ(file.append(FileBytes(4000)), std::nullopt);
  const std::string first = file.path();
  ASSERT_TRUE(file.begin_next(FileBytes(1000)));
  const std::uint64_t earlier = fs::file_size(first);
  EXPECT_EQ(file.append(FileBytes(10'000 - kEndRoom - 1000 - earlier)), std::nullopt);
  EXPECT_TRUE(fs::exists(first));
  EXPECT_EQ(file.append(FileBytes(1)), std::nullopt);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_EQ(file.total_size(), earlier + file.size()) << "deleted files count";
}

// Both files must fit: the current one with its last frame, and the next one with room for its last frame.
TEST(JournalFile, StaysInItsFileWhenTheBudgetHasNoRoomForTheNextOne) {
  for (const std::uint64_t too_many : {0U, 1U}) {
    const TempFolder folder;
    auto file = JournalFile::create(folder.path(), 10'000).value();
    ASSERT_EQ(file.append(FileBytes(4000)), std::nullopt);
    const std::string path = file.path();
    EXPECT_EQ(file.begin_next(FileBytes(6000 - 2 * kEndRoom + too_many)), too_many == 0);
    EXPECT_EQ(file.path() == path, too_many == 1);
    EXPECT_EQ(names_in(folder.path()).size(), 2U - too_many);
    if (too_many == 0) continue;
    EXPECT_EQ(file.size(), 4000U);
    EXPECT_EQ(file.total_size(), 4000U);
    EXPECT_EQ(file.append(FileBytes(6000 - kEndRoom)), std::nullopt);
  }
}

TEST(JournalFile, KeepsWholeFramesOnlyWhenTheDiskIsFull) {
  const TempFolder folder;
  auto file = JournalFile::create(folder.path(), 100'000).value();
  const std::string path = file.path();
  {
    const FileSizeLimit limit(2000);
    EXPECT_EQ(file.append(FileBytes(1500)), std::nullopt);
    EXPECT_EQ(file.append(FileBytes(501)), JournalEnd::disk);
    EXPECT_EQ(fs::file_size(path), 1500U);
    EXPECT_EQ(file.append(FileBytes(300)), std::nullopt);
    EXPECT_FALSE(file.begin_next(FileBytes(2001)));
    EXPECT_EQ(names_in(folder.path()).size(), 1U) << "no unfinished file is left";
  }
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.size(), 1800U);
  EXPECT_EQ(fs::file_size(path), 1800U);
  EXPECT_TRUE(file.begin_next(FileBytes(2001)));
  EXPECT_GT(fs::file_size(path), 1800U) << "the file has its last frame";
}

TEST(JournalFile, StaysInItsFileWhenTheFolderIsGone) {
  const TempFolder folder;
  auto file = JournalFile::create(folder.file("journals"), 100'000).value();
  fs::remove_all(folder.file("journals"));
  const std::string path = file.path();
  EXPECT_FALSE(file.begin_next(FileBytes(10)));
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.append(FileBytes(10)), std::nullopt);
}

TEST(JournalFile, ReportsThePathAndTheReasonWhenItCannotBeWritten) {
  const TempFolder folder;
  const std::string blocked = folder.file("file");
  make_file(blocked, 4);
  const Error error = JournalFile::create(blocked, 100'000).error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.to_string(), fmt::format("journal: '{}' cannot be written: Not a directory; "
                                           "use a folder that you own, on a disk with free space",
                                           blocked));
  const Error saved = JournalFile::create_saved(blocked).error();
  EXPECT_EQ(saved.code, ErrorCode::io);
  EXPECT_TRUE(saved.message.starts_with(fmt::format("'{}/saved-", blocked))) << saved.message;
  EXPECT_TRUE(saved.message.ends_with(".qj' cannot be written: Not a directory")) << saved.message;
  EXPECT_EQ(saved.field, "journal");
  EXPECT_EQ(saved.remedy, "make the folder writable for the server");
}

TEST(JournalFile, LeavesNoDescriptorOpen) {
  const auto count = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), {}); };
  const TempFolder folder;
  make_file(folder.file("quire-1.qj"), 10);
  make_file(folder.file("quire-1.qj.part"), 10);
  const auto before = count();
  {
    auto file = JournalFile::create(folder.path(), 100'000).value();
    EXPECT_EQ(count(), before + 1);
    EXPECT_TRUE(file.begin_next(FileBytes(10)));
    EXPECT_EQ(count(), before + 1);
    JournalFile moved = std::move(file);
    EXPECT_EQ(moved.append(FileBytes(10)), std::nullopt);
    EXPECT_TRUE(moved.begin_next(FileBytes(10)));
    EXPECT_EQ(fs::path(moved.path()).parent_path(), folder.path());
  }
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace quire::test
