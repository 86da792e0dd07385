// Tests the guarantees of the store with each I/O backend.
#include "runtime/tier/disk_store.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "runtime/tier/memory_files.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kBlock = 70'000;  // no multiple of a page
constexpr std::uint64_t kBudget = 2 << 20;

DiskStoreOptions small_tier() {
  return {.budget_bytes = kBudget, .block_bytes = kBlock, .fingerprint = tier_fingerprint()};
}

enum class Way : std::uint8_t { io_uring, threads, memory };

class DiskStoreTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam() != Way::io_uring) return;
    auto files = open_tier_folder(folder_.path(), TierIo::io_uring);
    if (files && (*files)->open_queue(1) == nullptr) GTEST_SKIP() << "this build of quire or this kernel does not support io_uring";
  }
  std::unique_ptr<TierFiles> files() {
    if (GetParam() == Way::memory) return std::make_unique<MemoryFiles>(disk_);
    return tier_folder(folder_.path(), GetParam() == Way::threads ? TierIo::threads : TierIo::io_uring);
  }
  TierClient open(const DiskStoreOptions& options = small_tier()) { return {files(), options}; }

  TempFolder folder_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
};
std::string way_name(const testing::TestParamInfo<Way>& tested) {
  if (tested.param == Way::memory) return "memory";
  return tested.param == Way::threads ? "threads" : "io_uring";
}
INSTANTIATE_TEST_SUITE_P(Ways, DiskStoreTest, testing::Values(Way::io_uring, Way::threads, Way::memory), way_name);

class DiskStoreFolderTest : public DiskStoreTest {};
INSTANTIATE_TEST_SUITE_P(Ways, DiskStoreFolderTest, testing::Values(Way::io_uring, Way::threads), way_name);

TEST_P(DiskStoreTest, LoadsStoredBlocksByTheirKey) {
  TierClient store = open();
  ASSERT_TRUE(store.is_open()) << store.error().to_string();
  const std::uint32_t num_places = store->num_places();
  EXPECT_GE(num_places, 25U);
  for (std::uint32_t i = 0; i < num_places; ++i) EXPECT_EQ(store.store(i, 100 + i), TierOutcome::done);
  for (std::uint32_t i = num_places; i-- > 0;) EXPECT_EQ(store.load(i, 100 + i), Loaded::right);
  EXPECT_EQ(store.load(3, 104), Loaded::absent) << "the slot holds another block";
  EXPECT_EQ(store.store(3, 999), TierOutcome::done);
  EXPECT_EQ(store.load(3, 103), Loaded::absent) << "the block was overwritten";
  EXPECT_EQ(store.load(3, 999), Loaded::right);
  const DiskStoreStats stats = store->stats();
  EXPECT_EQ(stats.num_stored, num_places + 1);
  EXPECT_EQ(stats.bytes_loaded, kBlock * (num_places + 1));
  EXPECT_EQ(stats.num_absent, 2U);
  EXPECT_EQ(stats.num_refused + stats.num_failed() + stats.num_restored, 0U);
}

TEST_P(DiskStoreTest, FindsItsBlocksAfterARestart) {
  TierClient store = open();
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(store.store(2 * i, i), TierOutcome::done);
  EXPECT_EQ(store.store(4, 50), TierOutcome::done);
  store.close();
  for (int restart = 0; restart < 3; ++restart) {
    TierClient again = open();
    std::map<std::uint32_t, RestoredBlock> found;
    for (const RestoredBlock& block : again.restored()) found[block.place] = block;
    ASSERT_EQ(found.size(), 10U);
    for (std::uint32_t i = 0; i < 10; ++i) {
      const std::uint64_t number = i == 2 ? 50 : i;
      EXPECT_EQ(found[2 * i].name, tier_name(number));
      EXPECT_EQ(found[2 * i].bytes, kBlock);
      EXPECT_EQ(again.load(2 * i, number), Loaded::right);
    }
    EXPECT_GT(found[4].sequence, found[18].sequence) << "the block was stored last";
    EXPECT_EQ(again->stats().num_restored, 10U);
  }
}

TEST_P(DiskStoreTest, RunsOneTransferPerSlotAndManyAtATime) {
  TierClient store = open({.budget_bytes = kBudget, .block_bytes = kBlock, .fingerprint = tier_fingerprint(), .depth = 4});
  for (std::uint32_t i = 0; i < store->num_places(); ++i) store.store(i, i);
  std::atomic<std::uint32_t> num_right = 0;
  std::atomic<std::uint32_t> num_over = 0;
  Random random(3);
  constexpr std::uint32_t kJobs = 2000;
  for (std::uint32_t i = 0; i < kJobs; ++i) {
    const auto place = static_cast<std::uint32_t>(random.below(store->num_places()));
    const bool stores = random.chance(0.3);
    store->submit({.verb = stores ? TierJob::Verb::store : TierJob::Verb::load,
                   .place = place,
                   .name = tier_name(place),
                   .bytes = kBlock,
                   .copy =
                       [&, place, stores](std::span<std::byte> bytes) {
                         const std::vector<std::byte> block = tier_block(place, bytes.size());
                         if (stores) std::ranges::copy(block, bytes.begin());
                         if (!stores) EXPECT_TRUE(std::ranges::equal(bytes, block));
                         return true;
                       },
                   .over =
                       [&](TierOutcome outcome) {
                         EXPECT_NE(outcome, TierOutcome::refused) << "writes and reads of a slot have mixed";
                         num_right += outcome == TierOutcome::done ? 1 : 0;
                         ++num_over;
                       }});
  }
  store.close();
  EXPECT_EQ(num_over, kJobs) << "each job ends once, at the latest with the store";
  TierClient again = open();
  EXPECT_EQ(again.restored().size(), again->num_places());
}

// Each missed load submits the next one.
TEST_P(DiskStoreTest, ManyMissesDelayNoOtherJob) {
  TierClient store = open();
  EXPECT_EQ(store.store(0, 1), TierOutcome::done);
  std::atomic<bool> goes_on = true;
  std::promise<void> last;
  const std::function<void()> miss = [&] {
    store->submit({.verb = TierJob::Verb::load,
                   .place = 1,
                   .name = tier_name(1),
                   .bytes = kBlock,
                   .copy = [](std::span<std::byte>) { return true; },
                   .over = [&](TierOutcome) { goes_on ? miss() : last.set_value(); }});
  };
  miss();
  EXPECT_EQ(store.load(0, 1), Loaded::right);
  goes_on = false;
  last.get_future().wait();
}

TEST_P(DiskStoreTest, CancelsAStoreThatIsNoLongerNeeded) {
  TierClient store = open();
  EXPECT_EQ(store.store(0, 1), TierOutcome::done);
  std::promise<TierOutcome> over;
  store->submit({.verb = TierJob::Verb::store,
                 .place = 0,
                 .name = tier_name(2),
                 .bytes = kBlock,
                 .copy = [](std::span<std::byte>) { return false; },
                 .over = [&](TierOutcome outcome) { over.set_value(outcome); }});
  EXPECT_EQ(over.get_future().get(), TierOutcome::cancelled);
  EXPECT_EQ(store->stats().num_cancelled, 1U);
  EXPECT_EQ(store.load(0, 1), Loaded::right) << "the old block was not overwritten";
}

TEST_P(DiskStoreTest, AllowsTheBudgetToGrowAndShrink) {
  DiskStoreOptions options = small_tier();
  TierClient store = open(options);
  const std::uint32_t before = store->num_places();
  for (std::uint32_t i = 0; i < before; ++i) store.store(i, i);
  store.close();
  options.budget_bytes *= 2;
  {
    TierClient more = open(options);
    EXPECT_GT(more->num_places(), 2 * before);
    EXPECT_EQ(more.restored().size(), before);
    EXPECT_EQ(more.store(more->num_places() - 1, 77), TierOutcome::done);
  }
  options.budget_bytes /= 4;
  TierClient less = open(options);
  EXPECT_LT(less->num_places(), before);
  EXPECT_EQ(less.restored().size(), less->num_places());
  for (std::uint32_t i = 0; i < less->num_places(); ++i) EXPECT_EQ(less.load(i, i), Loaded::right);
  if (GetParam() != Way::memory) EXPECT_LE(folder_.disk_bytes(), options.budget_bytes);
}

TEST_P(DiskStoreTest, RefusesAnotherModelOrLayoutAndKeepsTheFolder) {
  TierClient store = open();
  store.store(1, 1);
  store.close();
  DiskStoreOptions other = small_tier();
  other.fingerprint = tier_fingerprint(8);
  EXPECT_EQ(open(other).error().to_string(),
            "kv_disk: the folder contains blocks of another model or another layout; use a separate folder for each model, or remove its "
            "quire-* files");
  other = small_tier();
  other.block_bytes *= 2;
  EXPECT_EQ(open(other).error().field, "kv_disk");
  TierClient again = open();
  EXPECT_EQ(again.restored().size(), 1U);
  EXPECT_EQ(again.load(1, 1), Loaded::right);
}

// The file is truncated while the store uses it.
TEST_P(DiskStoreFolderTest, ShortReadsAreMisses) {
  TierClient store = open();
  for (std::uint32_t i = 0; i < 10; ++i) store.store(i, i);
  ASSERT_EQ(truncate(folder_.file("quire-blocks").c_str(), 5 * 73'728 + 4096), 0);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(store.load(i, i), i < 5 ? Loaded::right : Loaded::failed);
  store.close();
  TierClient again = open();
  EXPECT_EQ(again.restored().size(), 10U);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(again.load(i, i), i < 5 ? Loaded::right : Loaded::refused);
  EXPECT_EQ(again.load(7, 7), Loaded::absent) << "a refused block is removed";
  EXPECT_EQ(again.store(7, 7), TierOutcome::done);
}

TEST_P(DiskStoreFolderTest, LosesOnlyTheEntriesThatWereCutOff) {
  TierClient store = open();
  for (std::uint32_t i = 0; i < 10; ++i) store.store(i, i);
  store.close();
  ASSERT_EQ(truncate(folder_.file("quire-table").c_str(), static_cast<off_t>(entry_offset(4) + 30)), 0);
  TierClient again = open();
  EXPECT_EQ(again.restored().size(), 4U);
  EXPECT_EQ(again->stats().num_entries_refused, 1U) << "the fifth entry is cut in two";
}

TEST(DiskStoreErrorsTest, RefusesInvalidOptionsAndBudgets) {
  const auto error = [](const DiskStoreOptions& options) {
    return TierClient(std::make_unique<MemoryFiles>(std::make_shared<MemoryDisk>()), options).error().to_string();
  };
  EXPECT_EQ(error({.budget_bytes = 1 << 20, .block_bytes = 0}),
            "block_bytes: is 0, but must be 1 to 1073741824; choose a smaller block_size");
  EXPECT_EQ(error({.budget_bytes = 1 << 20, .block_bytes = 1 << 20}),
            "kv_disk_budget: 1048576 bytes are too small for one block of 1048576 bytes; use at least 1097728 bytes");
  EXPECT_EQ(error({.budget_bytes = 1 << 20, .block_bytes = 4096, .depth = 0}),
            "depth: is 0, but must be 1 to 256; choose a depth in this range");
  EXPECT_EQ(error({.budget_bytes = 1097728, .block_bytes = 1 << 20}), "");
}

TEST(DiskStoreErrorsTest, RefusesAFileThatIsNoTableAndKeepsIt) {
  const TempFolder folder;
  std::ofstream(folder.file("quire-table")) << "the notes of somebody else";
  TierClient store(tier_folder(folder.path()), small_tier());
  EXPECT_EQ(store.error().to_string(),
            "kv_disk: quire-table in the folder is not the table of a disk tier; use another folder, or remove the file");
  std::string text;
  std::getline(std::ifstream(folder.file("quire-table")), text);
  EXPECT_EQ(text, "the notes of somebody else");
}

TEST(DiskStoreErrorsTest, RefusesAnotherVersion) {
  const TempFolder folder;
  {
    TierClient store(tier_folder(folder.path()), small_tier());
  }
  std::fstream table(folder.file("quire-table"), std::ios::in | std::ios::out | std::ios::binary);
  for (const std::uint64_t page : {std::uint64_t{0}, kTierPageBytes}) table.seekp(static_cast<std::streamoff>(page + 16)).put(2);
  table.close();
  TierClient store(tier_folder(folder.path()), small_tier());
  EXPECT_EQ(store.error().code, ErrorCode::unsupported);
  EXPECT_EQ(store.error().remedy, "use another folder, or remove its quire-* files");
}

TEST(DiskStoreErrorsTest, RefusesABudgetAboveTheFreeSpace) {
  const TempFolder folder;
  const std::uint64_t room = std::filesystem::space(folder.path()).available;
  TierClient store(tier_folder(folder.path()), {.budget_bytes = 2 * room, .block_bytes = 1 << 20, .fingerprint = tier_fingerprint()});
  EXPECT_EQ(store.error().field, "kv_disk_budget");
  EXPECT_EQ(store.error().remedy, "use a smaller budget, or free space on the disk");
  EXPECT_LE(folder.disk_bytes(), 1U << 20U);
}

TEST(DiskStoreErrorsTest, ReportsAFullDiskAndLeavesNoFiles) {
  const auto disk = std::make_shared<MemoryDisk>();
  disk->is_full = true;
  EXPECT_EQ(TierClient(std::make_unique<MemoryFiles>(disk), small_tier()).error().to_string(), "kv_disk_budget: the disk is full");
  EXPECT_EQ(disk->blocks.size() + disk->table.size(), 0U);
}

TEST(DiskStoreErrorsTest, RefusesASecondTierOnAFolderAndNamesTheProcess) {
  const TempFolder folder;
  const auto first = tier_folder(folder.path());
  const auto second = open_tier_folder(folder.path(), TierIo::automatic);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().to_string(),
            "kv_disk: process " + std::to_string(getpid()) + " is using " + folder.path() + "; use a separate folder for each process");
  const pid_t child = fork();
  if (child == 0) _exit(open_tier_folder(folder.path(), TierIo::automatic).has_value() ? 1 : 0);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "another process is refused too";
}

// Opens the folder in a process without rights. Returns the error, or "opened".
std::string error_of_unprivileged_process(const std::string& folder) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    const auto files = open_tier_folder(folder, TierIo::automatic);
    const std::string text = files ? "opened" : files.error().to_string();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::string text(1000, ' ');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(read(ends[0], text.data(), text.size()), 0)));
  close(ends[0]);
  return text;
}

TEST(DiskStoreErrorsTest, NamesFoldersThatCannotBeUsed) {
  const TempFolder folder;
  const std::string readable = folder.file("readable"), closed = folder.file("closed"),
                    remedy = "; use a folder that this user can read and write";
  std::filesystem::create_directories(readable);
  std::filesystem::create_directories(closed);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755) + chmod(readable.c_str(), 0555) + chmod(closed.c_str(), 0), 0);
  EXPECT_EQ(error_of_unprivileged_process(readable), "kv_disk: " + readable + "/quire-lock cannot be opened: Permission denied" + remedy);
  EXPECT_EQ(error_of_unprivileged_process(closed), "kv_disk: " + closed + " cannot be opened: Permission denied" + remedy);
  EXPECT_EQ(error_of_unprivileged_process(closed + "/new"), "kv_disk: " + closed + "/new cannot be created: Permission denied" + remedy);
  std::ofstream(folder.file("file")) << "text";
  EXPECT_EQ(open_tier_folder(folder.file("file"), TierIo::automatic).error().message,
            folder.file("file") + " cannot be opened: Not a directory");
  ASSERT_EQ(chmod(closed.c_str(), 0755), 0);
}

TEST(DiskStoreErrorsTest, TreatsAnIoErrorAsAMissAndContinues) {
  const auto disk = std::make_shared<MemoryDisk>();
  TierClient store(std::make_unique<MemoryFiles>(disk), small_tier());
  store.store(0, 0);
  store.store(1, 1);
  disk->refuses_reads = true;
  EXPECT_EQ(store.load(0, 0), Loaded::failed);
  disk->refuses_reads = false;
  EXPECT_EQ(store.load(0, 0), Loaded::right) << "the disk works again, and the block was never lost";
  disk->fault = [](std::uint64_t) { return Fault::fails; };
  EXPECT_EQ(store.store(0, 2), TierOutcome::failed);
  EXPECT_EQ(store.load(0, 2), Loaded::absent);
  EXPECT_EQ(store.load(1, 1), Loaded::right);
  disk->fault = {};
  EXPECT_EQ(store.store(0, 2), TierOutcome::done);
  EXPECT_EQ(store.load(0, 2), Loaded::right);
  EXPECT_EQ(store->stats().num_failed(), 2U);
}

// Forbids the system call that creates a ring, like containers do.
bool forbid_io_uring() {
  std::array<sock_filter, 4> filter{{{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                                     {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_setup},
                                     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
                                     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}}};
  const sock_fprog program{filter.size(), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(DiskStoreErrorsTest, UsesThreadsWhenIoUringIsForbidden) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_io_uring()) _exit(2);
    const bool is_told = TierClient(tier_folder(folder.path(), TierIo::io_uring), small_tier()).error().field == "io";
    TierClient store(tier_folder(folder.path()), small_tier());
    const bool works = store.is_open() && store.store(1, 1) == TierOutcome::done && store.load(1, 1) == Loaded::right;
    _exit(is_told && works ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this kernel supports no seccomp filter";
  EXPECT_EQ(status, 0);
}

// Stores blocks in random order so that the file system's extent maps grow. The disk use must stay within the budget.
TEST(DiskStoreBoundTest, RandomChurnStaysWithinTheBudget) {
  for (const std::string& above : {std::filesystem::temp_directory_path().string(), std::string("/dev/shm")}) {
    if (access(above.c_str(), W_OK) != 0) continue;
    const TempFolder folder(above);
    Random random(11);
    for (const std::uint64_t budget : {300'000U, 6'000'000U, 1'000'000U, 6'000'001U}) {
      TierClient store(tier_folder(folder.path()), {.budget_bytes = budget, .block_bytes = 4096, .fingerprint = tier_fingerprint()});
      ASSERT_TRUE(store.is_open()) << store.error().to_string();
      EXPECT_LE(folder.disk_bytes(), budget) << above;
      for (std::uint32_t i = 0; i < 1500; ++i) {
        EXPECT_EQ(store.store(static_cast<std::uint32_t>(random.below(store->num_places())), random.below(5000)), TierOutcome::done);
        if (i % 25 == 0) ASSERT_LE(folder.disk_bytes(), budget) << above;
      }
      store.close();
      EXPECT_LE(folder.disk_bytes(), budget) << above;
      EXPECT_GT(folder.disk_bytes(), budget - budget / 4) << "most of the budget is used";
    }
  }
}

// Stores many blocks at a time and opens the tier again each hour. QUIRE_TIER_CHURN=6400000 is a day at 74 blocks per second, the rate of
// the default model on two cores.
TEST(DiskStoreBoundTest, ADayOfChurnStaysWithinTheBudget) {
  const char* wanted = std::getenv("QUIRE_TIER_CHURN");
  const std::uint64_t num_blocks = wanted == nullptr ? 24'000 : std::strtoull(wanted, nullptr, 10);
  constexpr std::uint64_t kHours = 24, kDayBudget = 40'000'000, kLook = 1000;
  const TempFolder folder;
  std::uint64_t most = 0;
  std::atomic<std::uint64_t> num_stored = 0;
  for (std::uint64_t hour = 0; hour < kHours; ++hour) {
    Random random(hour);
    TierClient store(tier_folder(folder.path()), {.budget_bytes = kDayBudget, .block_bytes = 4096, .fingerprint = tier_fingerprint()});
    ASSERT_TRUE(store.is_open()) << store.error().to_string();
    std::atomic<std::uint64_t> num_over = 0;
    for (std::uint64_t i = 0; i < num_blocks / kHours; ++i) {
      for (std::uint64_t seen = num_over; i >= seen + 256; seen = num_over) num_over.wait(seen);
      store->submit({.verb = TierJob::Verb::store,
                     .place = static_cast<std::uint32_t>(random.below(store->num_places())),
                     .name = tier_name(i),
                     .bytes = 4096,
                     .copy = [](std::span<std::byte> bytes) { return std::ranges::fill(bytes, std::byte{7}), true; },
                     .over =
                         [&](TierOutcome outcome) {
                           num_stored += outcome == TierOutcome::done ? 1 : 0;
                           ++num_over;
                           num_over.notify_one();
                         }});
      if (i % kLook == 0) most = std::max(most, folder.disk_bytes());
    }
    for (std::uint64_t seen = num_over; seen < num_blocks / kHours; seen = num_over) num_over.wait(seen);
    store.close();
    most = std::max(most, folder.disk_bytes());
    ASSERT_LE(most, kDayBudget);
  }
  std::printf("%llu blocks stored in %d bytes, at most %llu used\n", static_cast<unsigned long long>(num_stored),
              static_cast<int>(kDayBudget), static_cast<unsigned long long>(most));
  EXPECT_GT(num_stored, num_blocks * 9 / 10) << "the other stores met a slot with a store in flight";
}

}  // namespace
}  // namespace quire::test
