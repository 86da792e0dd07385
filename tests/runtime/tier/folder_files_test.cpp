// Tests the files of a disk tier's folder and the queues that move its blocks, with each I/O backend.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/tier/block_queues.h"
#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::size_t kIoPage = 4096;

// Pages of memory that a disk can use.
class IoBuffer {
 public:
  explicit IoBuffer(std::size_t pages) : bytes_(static_cast<std::byte*>(std::aligned_alloc(kIoPage, pages * kIoPage)), pages * kIoPage) {
    std::ranges::fill(bytes_, std::byte{0});
  }
  ~IoBuffer() { std::free(bytes_.data()); }
  IoBuffer(const IoBuffer&) = delete;
  IoBuffer& operator=(const IoBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> pages(std::size_t first, std::size_t count) const {
    return bytes_.subspan(first * kIoPage, count * kIoPage);
  }

 private:
  std::span<std::byte> bytes_;
};

unsigned mode_of(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 0777U;
}

TEST(FolderFilesTest, CreateAFolderThatOnlyItsOwnerCanRead) {
  const TempFolder temp;
  const std::string folder = temp.file("a/b/c");
  const auto files = open_tier_folder(folder, TierIo::threads);
  ASSERT_TRUE(files) << files.error().to_string();
  EXPECT_EQ(mode_of(folder), 0700U);
  for (const char* name : {"/quire-lock", "/quire-blocks", "/quire-table"}) EXPECT_EQ(mode_of(folder + name), 0600U) << name;
  std::string owner;
  std::getline(std::ifstream(folder + "/quire-lock"), owner);
  EXPECT_EQ(owner, std::to_string(getpid()));
  EXPECT_EQ((*files)->table_bytes().value(), 0U);
}

TEST(FolderFilesTest, ReplaceTheOwnerOfAnUnusedFolder) {
  const TempFolder temp;
  std::ofstream(temp.file("quire-lock")) << "123456789012345";
  ASSERT_TRUE(open_tier_folder(temp.path(), TierIo::threads));
  std::string owner;
  std::getline(std::ifstream(temp.file("quire-lock")), owner);
  EXPECT_EQ(owner, std::to_string(getpid()));
}

TEST(FolderFilesTest, GrowByZerosAndCutTheEnd) {
  const TempFolder temp;
  const auto files = tier_folder(temp.path(), TierIo::threads);
  for (const TierFile file : {TierFile::table, TierFile::blocks}) {
    const std::string path = temp.file(file == TierFile::table ? "quire-table" : "quire-blocks");
    for (const std::uint64_t size : {8192U, 20480U, 4096U, 0U, 12288U}) {
      ASSERT_TRUE(files->resize(file, size));
      EXPECT_EQ(std::filesystem::file_size(path), size);
    }
  }
  EXPECT_EQ(files->table_bytes().value(), 12288U);
  std::vector<std::byte> bytes(12288, std::byte{1});
  ASSERT_TRUE(files->read_table(0, bytes));
  EXPECT_EQ(bytes, std::vector<std::byte>(12288)) << "cut bytes do not come back";
  std::ranges::fill(bytes, std::byte{7});
  ASSERT_TRUE(files->write_table(0, bytes));
  ASSERT_TRUE(files->resize(TierFile::table, 4096));
  ASSERT_TRUE(files->resize(TierFile::table, 8192));
  std::vector<std::byte> kept(8192);
  ASSERT_TRUE(files->read_table(0, kept));
  EXPECT_EQ(std::ranges::count(kept, std::byte{7}), 4096);
  EXPECT_EQ(kept[4095], std::byte{7});
  EXPECT_EQ(files->disk_bytes().value(), temp.disk_bytes());
  EXPECT_TRUE(files->sync_table());
}

TEST(FolderFilesTest, ReadAndWritePartsOfTheTable) {
  const TempFolder temp;
  const auto files = tier_folder(temp.path(), TierIo::threads);
  ASSERT_TRUE(files->resize(TierFile::table, 8192));
  const std::vector<std::byte> part = tier_block(1, 128);
  ASSERT_TRUE(files->write_table(4000, part));
  std::vector<std::byte> read(128);
  ASSERT_TRUE(files->read_table(4000, read));
  EXPECT_EQ(read, part);
  ASSERT_TRUE(files->read_table(8192 - 128, read));
  EXPECT_EQ(read, std::vector<std::byte>(128));
  const auto beyond = files->read_table(8192 - 127, read);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().to_string(), "kv_disk: the table of " + temp.path() + " cannot be read: Input/output error");
  errno = 0;
  const auto after = files->read_table(8192, read);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().to_string(), beyond.error().to_string());
}

TEST(FolderFilesTest, RefuseMoreBytesThanTheDiskHas) {
  const TempFolder temp;
  const auto files = tier_folder(temp.path(), TierIo::threads);
  ASSERT_TRUE(files->resize(TierFile::blocks, 8192));
  const std::uint64_t room = free_bytes(temp.path()).value();
  EXPECT_GT(room, 0U);
  const std::uint64_t wanted = 2 * room + (1 << 20);
  const auto grown = files->resize(TierFile::blocks, wanted);
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().field, "kv_disk_budget");
  // The file has 8192 bytes already.
  EXPECT_TRUE(grown.error().message.starts_with(std::to_string(wanted - 8192) + " bytes are needed in " + temp.path() + ", but "))
      << grown.error().message;
  EXPECT_EQ(std::filesystem::file_size(temp.file("quire-blocks")), 8192U) << "the file stays as it was";
  EXPECT_EQ(free_bytes(temp.file("nowhere")).error().to_string(),
            "kv_disk: the free space of " + temp.file("nowhere") + " cannot be read: No such file or directory");
}

TEST(FolderFilesTest, KnowTheFreeBytesOfTheirFileSystem) {
  const TempFolder temp;
  // Other programs use the file system, too.
  EXPECT_TRUE(comes_true([&] { return free_bytes(temp.path()).value() == std::filesystem::space(temp.path()).available; }));
}

TEST(FolderFilesTest, AreIdentifiedByTheirFileOfBlocks) {
  const TempFolder first, second;
  EXPECT_FALSE(identity_of(first.path()));
  tier_folder(first.path(), TierIo::threads);
  tier_folder(second.path(), TierIo::threads);
  const auto identity = identity_of(first.path());
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity_of(first.path()), identity);
  EXPECT_NE(identity_of(second.path()), identity);
  std::filesystem::rename(first.file("quire-blocks"), second.file("kept"));
  EXPECT_FALSE(identity_of(first.path()));
}

// Returns the flags of this process' descriptor of a file; 0 if it has none.
int flags_of_open(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) == path) return fcntl(std::stoi(entry.path().filename()), F_GETFL);
  }
  return 0;
}

TEST(FolderFilesTest, BypassThePageCacheIfTheFileSystemAllowsIt) {
  for (const std::string& above : {std::filesystem::temp_directory_path().string(), std::string("/dev/shm")}) {
    if (access(above.c_str(), W_OK) != 0) continue;
    const TempFolder temp(above);
    const std::string probe = temp.file("probe");
    const IoBuffer buffer(1);
    const int direct = open(probe.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    const bool is_possible = direct >= 0 && pread(direct, buffer.pages(0, 1).data(), kIoPage, 0) >= 0;
    if (direct >= 0) close(direct);
    const auto files = tier_folder(temp.path(), TierIo::threads);
    const std::string folder = std::filesystem::canonical(temp.path());
    EXPECT_EQ((flags_of_open(folder + "/quire-blocks") & O_DIRECT) != 0, is_possible) << above;
    EXPECT_EQ(flags_of_open(folder + "/quire-blocks") & O_ACCMODE, O_RDWR) << above;
    EXPECT_EQ(flags_of_open(folder + "/quire-table") & (O_DIRECT | O_ACCMODE), O_RDWR) << above;
  }
}

class BlockQueueTest : public testing::TestWithParam<TierIo> {
 protected:
  static constexpr std::uint32_t kQueueDepth = 8;
  void SetUp() override {
    files_ = tier_folder(folder_.path(), GetParam());
    ASSERT_TRUE(files_->resize(TierFile::blocks, 32 * kIoPage));
    queue_ = files_->open_queue(kQueueDepth);
    if (queue_ == nullptr) GTEST_SKIP() << "this build of quire or this kernel does not support io_uring";
  }
  // Waits until `count` reads and writes have ended, and returns their completions, sorted by tag.
  std::vector<BlockIoCompletion> collect(std::size_t count) {
    std::vector<BlockIoCompletion> over;
    while (over.size() < count) queue_->collect(true, over);
    std::ranges::sort(over, {}, &BlockIoCompletion::tag);
    return over;
  }

  TempFolder folder_;
  std::unique_ptr<TierFiles> files_;
  std::unique_ptr<BlockQueue> queue_;
};
INSTANTIATE_TEST_SUITE_P(Ways, BlockQueueTest, testing::Values(TierIo::io_uring, TierIo::threads, TierIo::automatic),
                         [](const testing::TestParamInfo<TierIo>& tested) {
                           return std::string(tested.param == TierIo::io_uring  ? "io_uring"
                                              : tested.param == TierIo::threads ? "threads"
                                                                                : "automatic");
                         });

TEST_P(BlockQueueTest, MovesEachBlockToItsOffset) {
  const IoBuffer buffer(32);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t tag = 0; tag < kQueueDepth; ++tag) {
      const std::size_t pages = 1 + tag % 2;
      std::ranges::copy(tier_block(100 * static_cast<unsigned>(round) + tag, pages * kIoPage), buffer.pages(2 * tag, pages).begin());
      queue_->submit({.tag = tag, .is_write = true, .offset = (30 - 4 * tag) * kIoPage, .bytes = buffer.pages(2 * tag, pages)});
    }
    const auto written = collect(kQueueDepth);
    ASSERT_EQ(written.size(), kQueueDepth);
    for (std::uint32_t tag = 0; tag < kQueueDepth; ++tag) {
      EXPECT_EQ(written[tag].tag, tag);
      EXPECT_TRUE(written[tag].is_done) << tag;
    }
    const IoBuffer read(32);
    for (std::uint32_t tag = 0; tag < kQueueDepth; ++tag)
      queue_->submit({.tag = tag, .is_write = false, .offset = (30 - 4 * tag) * kIoPage, .bytes = read.pages(2 * tag, 1 + tag % 2)});
    for (const BlockIoCompletion& one : collect(kQueueDepth)) EXPECT_TRUE(one.is_done) << one.tag;
    for (std::uint32_t tag = 0; tag < kQueueDepth; ++tag)
      EXPECT_TRUE(std::ranges::equal(read.pages(2 * tag, 1 + tag % 2), buffer.pages(2 * tag, 1 + tag % 2))) << tag;
  }
}

TEST_P(BlockQueueTest, ReportsShortReadsAsFailures) {
  const IoBuffer buffer(6);
  queue_->submit({.tag = 0, .is_write = false, .offset = 31 * kIoPage, .bytes = buffer.pages(0, 1)});
  queue_->submit({.tag = 1, .is_write = false, .offset = 31 * kIoPage, .bytes = buffer.pages(1, 2)});
  queue_->submit({.tag = 2, .is_write = false, .offset = 32 * kIoPage, .bytes = buffer.pages(3, 1)});
  const auto over = collect(3);
  EXPECT_TRUE(over[0].is_done);
  EXPECT_FALSE(over[1].is_done) << "half of the bytes are beyond the end";
  EXPECT_FALSE(over[2].is_done) << "all bytes are beyond the end";
}

TEST_P(BlockQueueTest, ReturnsAtOnceOrAfterAWake) {
  std::vector<BlockIoCompletion> over;
  for (int i = 0; i < 100; ++i) queue_->collect(false, over);
  EXPECT_TRUE(over.empty());
  // A wake() before collect() is not lost.
  queue_->wake();
  queue_->collect(true, over);
  EXPECT_TRUE(over.empty());
  for (int round = 0; round < 3; ++round) {
    std::thread waker([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      queue_->wake();
    });
    queue_->collect(true, over);
    waker.join();
    EXPECT_TRUE(over.empty());
  }
  const IoBuffer buffer(1);
  queue_->submit({.tag = 3, .is_write = true, .offset = 0, .bytes = buffer.pages(0, 1)});
  over.push_back({.tag = 99, .is_done = false});
  queue_->collect(true, over);
  ASSERT_EQ(over.size(), 2U) << "an earlier wake does not end a later wait";
  EXPECT_EQ(over[0].tag, 99U) << "ends are appended";
  EXPECT_EQ(over[1].tag, 3U);
  queue_->collect(false, over);
  EXPECT_EQ(over.size(), 2U) << "each move ends once";
}

TEST_P(BlockQueueTest, IsNotWokenAtItsBeginning) {
  const IoBuffer buffer(1);
  queue_->submit({.tag = 1, .is_write = true, .offset = 0, .bytes = buffer.pages(0, 1)});
  std::vector<BlockIoCompletion> over;
  queue_->collect(true, over);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].tag, 1U);
}

TEST_P(BlockQueueTest, MovesBlocksWhileTheCallerDoesNotWait) {
  const IoBuffer buffer(kQueueDepth);
  for (std::uint32_t tag = 0; tag < kQueueDepth; ++tag)
    queue_->submit({.tag = tag, .is_write = true, .offset = tag * kIoPage, .bytes = buffer.pages(tag, 1)});
  std::vector<BlockIoCompletion> over;
  for (int i = 0; i < 10'000 && over.size() < kQueueDepth; ++i) {
    queue_->collect(false, over);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(over.size(), kQueueDepth);
}

TEST(BlockQueueKinds, FollowTheWantedKind) {
  const TempFolder temp;
  const auto num_rings = [] {
    std::ptrdiff_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      count += std::filesystem::read_symlink(entry.path(), error).string().contains("io_uring") ? 1 : 0;
    }
    return count;
  };
  const bool has_uring = make_uring_queue(-1, 8) != nullptr;
  for (const TierIo io : {TierIo::threads, TierIo::io_uring, TierIo::automatic}) {
    const auto files = tier_folder(temp.path(), io);
    const auto queue = files->open_queue(8);
    EXPECT_EQ(queue != nullptr, has_uring || io != TierIo::io_uring);
    EXPECT_EQ(num_rings(), has_uring && io != TierIo::threads ? 1 : 0);
  }
}

TEST_P(BlockQueueTest, ClosesItsDescriptors) {
  const auto num_open = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = num_open();
  for (int i = 0; i < 5; ++i) EXPECT_NE(files_->open_queue(kQueueDepth), nullptr);
  EXPECT_EQ(num_open(), before);
}

}  // namespace
}  // namespace quire::test
