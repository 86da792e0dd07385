// Host memory over a disk that hangs, fails and loses blocks: every block promised to the host arrives and every wait ends.
// tests/python/test_tiered_offload.py tests a working disk, kills and damaged files.
#include "quire/tiered_offload.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "quire/block_copier.h"
#include "runtime/tier/flaky_files.h"
#include "runtime/tier/tier_support.h"

namespace quire {
namespace {

using test::FlakyFiles;
using test::Flaws;
using test::MemoryDisk;

constexpr std::uint64_t kPageBytes = 5000;  // a block has two pages
constexpr std::uint32_t kNumSlots = 8;

OffloadKey key_of(std::uint64_t number) {
  OffloadKey key = test::tier_name(number);
  key.group = 0;
  return key;
}

std::vector<OffloadKey> keys_of(std::uint64_t first, std::uint64_t count) {
  std::vector<OffloadKey> keys;
  keys.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back(key_of(first + i));
  return keys;
}

// A host with one worker; the bytes of block `n` follow from n.
class TieredHost {
 public:
  TieredHost(const std::shared_ptr<MemoryDisk>& disk, const std::shared_ptr<Flaws>& flaws) {
    TieredOffloadOptions options;
    options.host.num_slots = kNumSlots;
    for (std::vector<std::byte>& tensor : tensors_) options.pages.push_back({.begin = tensor.data(), .page_bytes = kPageBytes});
    options.written.push_back(written_.data());
    options.folder = "/nowhere";
    options.budget_bytes = 1 << 20;
    auto opened = TieredOffload::open_on(std::make_unique<FlakyFiles>(disk, flaws), options);
    EXPECT_TRUE(opened) << opened.error().to_string();
    tiers_ = *std::move(opened);
  }

  void store(std::uint64_t first, std::uint64_t count) {
    const std::optional<StoreWithNumbers> store = tiers_->prepare_store(keys_of(first, count));
    ASSERT_TRUE(store);
    ASSERT_EQ(store->keys.size(), count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::vector<std::byte> block = test::tier_block(first + i, 2 * kPageBytes);
      for (std::size_t t = 0; t < 2; ++t)
        std::copy_n(block.data() + t * kPageBytes, kPageBytes, tensors_[t].data() + store->slots[i].value * kPageBytes);
      __atomic_store_n(written_.data() + store->slots[i].value, store->numbers[i], __ATOMIC_RELEASE);
    }
    tiers_->complete_store(keys_of(first, count));
  }

  // Asks like a scheduler, in step after step; no call may take long.
  std::uint32_t look_up(std::uint64_t first, std::uint64_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      if (const std::optional<std::uint32_t> found = tiers_->lookup(keys_of(first, count))) return *found;
      if (std::chrono::steady_clock::now() > end) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "lookup answers 'ask again' forever";
    return 0;
  }

  std::uint32_t load(std::uint64_t first, std::uint64_t count) {
    const std::uint32_t found = look_up(first, count);
    const auto slots = tiers_->prepare_load(keys_of(first, found));
    EXPECT_TRUE(slots);
    for (std::uint32_t i = 0; slots && i < found; ++i) {
      const std::vector<std::byte> block = test::tier_block(first + i, 2 * kPageBytes);
      for (std::size_t t = 0; t < 2; ++t)
        EXPECT_TRUE(std::equal(block.begin() + t * kPageBytes, block.begin() + (t + 1) * kPageBytes,
                               tensors_[t].begin() + (*slots)[i].value * kPageBytes))
            << "block " << first + i << " has wrong bytes";
    }
    EXPECT_TRUE(tiers_->complete_load(keys_of(first, found)));
    return found;
  }

  void wait(const std::function<bool(const TieredOffloadStats&)>& condition) {
    for (int i = 0; i < 15000 && !condition(tiers_->stats()); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(condition(tiers_->stats()));
  }
  TieredOffload& tiers() { return *tiers_; }

 private:
  std::array<std::vector<std::byte>, 2> tensors_{std::vector<std::byte>(kPageBytes * kNumSlots),
                                                 std::vector<std::byte>(kPageBytes* kNumSlots)};
  std::vector<std::uint64_t> written_ = std::vector<std::uint64_t>(kNumSlots);
  std::unique_ptr<TieredOffload> tiers_;
};

class TieredOffloadTest : public testing::Test {
 protected:
  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  const std::shared_ptr<Flaws> flaws_ = std::make_shared<Flaws>();
  TieredHost host_{disk_, flaws_};

  void store_and_push_out(std::uint64_t first) {
    host_.store(first, 4);
    host_.wait([](const TieredOffloadStats& stats) { return stats.num_written >= 4 && stats.num_held >= 4; });
    host_.store(first + 100, kNumSlots);
    host_.wait([](const TieredOffloadStats& stats) { return stats.num_held >= 12; });
  }
};

TEST_F(TieredOffloadTest, LoadsEvictedBlocksFromDisk) {
  store_and_push_out(1);
  EXPECT_EQ(host_.load(1, 5), 4U);
  EXPECT_EQ(host_.tiers().stats().num_read, 4U);
}

TEST_F(TieredOffloadTest, AHangingDiskIsAMissAndDoesNotBlockCalls) {
  store_and_push_out(1);
  flaws_->hangs = true;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(host_.tiers().lookup(keys_of(1, 4)), std::nullopt);
  host_.store(300, 4);  // abandons the read that hangs
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(host_.look_up(1, 4), 0U);
  EXPECT_EQ(host_.load(300, 4), 4U);
  flaws_->hangs = false;
  EXPECT_EQ(host_.load(300, 4), 4U) << "the late read has changed nothing";
}

TEST_F(TieredOffloadTest, AFailingDiskIsAMiss) {
  store_and_push_out(1);
  flaws_->fails_reads = true;
  EXPECT_EQ(host_.load(1, 4), 0U);
  host_.wait([](const TieredOffloadStats& stats) { return stats.num_failed > 0; });
  flaws_->fails_reads = false;
}

TEST_F(TieredOffloadTest, DoesNotFindBlocksWhoseWriteFailed) {
  flaws_->fails_writes = true;
  host_.store(1, 4);
  host_.wait([](const TieredOffloadStats& stats) { return stats.num_failed > 0; });
  EXPECT_EQ(host_.load(1, 4), 4U) << "host memory has the blocks";
  host_.store(100, kNumSlots);
  EXPECT_EQ(host_.look_up(1, 4), 0U);
}

TEST_F(TieredOffloadTest, HostMemoryEvictsAsItDoesWithoutADisk) {
  std::uint64_t next = 1;
  for (int i = 0; i < 200; ++i) {
    host_.store(next, 1 + next % 3);
    next += 1 + next % 3;
  }
  // LRU keeps the last blocks in host memory: they are loaded without the disk.
  const std::uint64_t before = host_.tiers().stats().num_read;
  EXPECT_EQ(host_.load(next - kNumSlots, kNumSlots), kNumSlots);
  EXPECT_EQ(host_.tiers().stats().num_read, before);
}

TEST(BlockCopier, DestructorDropsRemainingCopies) {
  std::vector<std::byte> device(64 * 100), host(64 * 100);
  std::uint64_t mark = 0;
  {
    BlockCopier copier({{.device = device.data(), .host = host.data(), .page_bytes = 64, .num_device_pages = 100, .num_host_pages = 100}},
                       &mark, 1);
    for (std::uint64_t i = 1; i <= 1000; ++i)
      EXPECT_TRUE(copier.submit({.id = i, .to_host = true, .device_pages = {3}, .host_pages = {4}, .marks = {0}, .numbers = {i}}));
    EXPECT_FALSE(copier.submit({.id = 0, .to_host = true, .device_pages = {100}, .host_pages = {4}, .marks = {}, .numbers = {}}));
    const std::uint64_t ids[] = {3, 500};
    copier.wait(ids);
    EXPECT_GE(__atomic_load_n(&mark, __ATOMIC_ACQUIRE), 500U);
  }
  EXPECT_GE(mark, 500U);
}

}  // namespace
}  // namespace quire
