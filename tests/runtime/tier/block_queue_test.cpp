// Tests both kinds of BlockQueue (block_queues.h) on a file: a submitted block is read without a further call, a waiting collect() can be
// woken, and a queue gives its descriptors back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/tier/block_queues.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kDepth = 4;
constexpr std::size_t kBlockBytes = 4096;

struct QueueKind {
  const char* name;
  std::unique_ptr<BlockQueue> (*make)(int, std::uint32_t);
};

class BlockQueueTest : public testing::TestWithParam<QueueKind> {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "quire-block-queue-XXXXXX").string();
    file_ = mkstemp(path.data());
    ASSERT_GE(file_, 0);
    ASSERT_EQ(unlink(path.c_str()), 0);
    for (std::uint32_t i = 0; i < kDepth; ++i) {
      const std::vector<char> block(kBlockBytes, static_cast<char>('a' + i));
      ASSERT_EQ(write(file_, block.data(), block.size()), static_cast<ssize_t>(kBlockBytes));
    }
    queue_ = make();
    if (queue_ == nullptr) GTEST_SKIP() << "this build or this kernel has no io_uring";
  }
  void TearDown() override {
    queue_.reset();
    if (file_ >= 0) close(file_);
  }
  [[nodiscard]] std::unique_ptr<BlockQueue> make() const { return GetParam().make(file_, kDepth); }

  int file_ = -1;
  std::unique_ptr<BlockQueue> queue_;
};

std::ptrdiff_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST_P(BlockQueueTest, ReadsWhatIsSubmittedWithoutAWaitingCollect) {
  std::array<std::array<std::byte, kBlockBytes>, kDepth> read{};
  for (std::uint32_t i = 0; i < kDepth; ++i) queue_->submit({.tag = i, .is_write = false, .offset = i * kBlockBytes, .bytes = read.at(i)});
  std::vector<BlockIoCompletion> done;
  for (int i = 0; i < 10'000 && done.size() < kDepth; ++i) {
    queue_->collect(false, done);
    if (done.size() < kDepth) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(done.size(), kDepth);
  std::ranges::sort(done, {}, &BlockIoCompletion::tag);
  for (std::uint32_t i = 0; i < kDepth; ++i) {
    EXPECT_EQ(done[i].tag, i);
    EXPECT_TRUE(done[i].is_done);
    EXPECT_TRUE(std::ranges::all_of(read.at(i), [i](std::byte byte) { return byte == std::byte('a' + i); }));
  }
}

TEST_P(BlockQueueTest, WakesACollectThatWaits) {
  for (int i = 0; i < 20; ++i) {
    std::jthread waker([this, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
      queue_->wake();
    });
    std::vector<BlockIoCompletion> done;
    queue_->collect(true, done);
    EXPECT_TRUE(done.empty()) << "nothing was submitted";
  }
}

TEST_P(BlockQueueTest, GivesItsDescriptorsBack) {
  const std::ptrdiff_t before = num_descriptors();
  for (int i = 0; i < 5; ++i) EXPECT_NE(make(), nullptr);
  EXPECT_EQ(num_descriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(All, BlockQueueTest,
                         testing::Values(QueueKind{"Threads", make_thread_queue}, QueueKind{"Uring", make_uring_queue}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace quire::test
