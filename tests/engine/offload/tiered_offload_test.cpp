// Host memory over a disk that hangs, fails and loses blocks: every block promised to the host arrives and every wait ends.
// tests/python/test_tiered_offload.py tests a working disk, kills and damaged files.
#include "quire/tiered_offload.h"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/offload/tiered_host.h"

namespace quire {
namespace {

using test::host_key;
using test::host_keys;
using test::kNumHostSlots;
using test::TieredHost;

class TieredOffloadTest : public testing::Test {
 protected:
  const std::shared_ptr<test::MemoryDisk> disk_ = std::make_shared<test::MemoryDisk>();
  const std::shared_ptr<test::Flaws> flaws_ = std::make_shared<test::Flaws>();
  TieredHost host_{disk_, flaws_};

  void store_and_push_out(std::uint64_t first) {
    host_.store(first, 4);
    host_.wait([](const TieredOffloadStats& stats) { return stats.num_written >= 4 && stats.num_held >= 4; });
    host_.store(first + 100, kNumHostSlots);
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
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 4)), std::nullopt);
  host_.store(300, 4);  // abandons the read that hangs
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(host_.look_up(1, 4), 0U);
  EXPECT_EQ(host_.load(300, 4), 4U);
  host_.wait([](const TieredOffloadStats& stats) { return stats.num_failed >= 4; });
  flaws_->hangs = false;
  EXPECT_EQ(host_.load(300, 4), 4U) << "the late read has changed nothing";
}

TEST_F(TieredOffloadTest, AFailingDiskIsAMiss) {
  store_and_push_out(1);
  flaws_->fails_reads = true;
  EXPECT_EQ(host_.load(1, 4), 0U);
  host_.wait([](const TieredOffloadStats& stats) { return stats.num_failed > 0; });
  flaws_->fails_reads = false;
  EXPECT_EQ(host_.state_of(1), OffloadState::absent) << "a block that could not be read is forgotten";
}

TEST_F(TieredOffloadTest, DoesNotFindBlocksWhoseWriteFailed) {
  flaws_->fails_writes = true;
  host_.store(1, 4);
  host_.wait([](const TieredOffloadStats& stats) { return stats.num_failed > 0; });
  EXPECT_EQ(host_.load(1, 4), 4U) << "host memory has the blocks";
  host_.store(100, kNumHostSlots);
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
  EXPECT_EQ(host_.load(next - kNumHostSlots, kNumHostSlots), kNumHostSlots);
  EXPECT_EQ(host_.tiers().stats().num_read, before);
}

TEST_F(TieredOffloadTest, ReportsWhereEachBlockIs) {
  EXPECT_EQ(host_.state_of(1), OffloadState::absent);
  const auto [slot, number] = host_.begin_store(1);
  EXPECT_EQ(host_.state_of(1), OffloadState::storing);
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 1)), 0U) << "a request is storing the block";
  host_.copy(1, slot, number);
  host_.tiers().complete_store(host_keys(1, 1));
  EXPECT_EQ(host_.state_of(1), OffloadState::stored);
  host_.wait([](const TieredOffloadStats& stats) { return stats.num_held == 1; });
  host_.store_to_folder(101, kNumHostSlots, 9);
  EXPECT_EQ(host_.state_of(1), OffloadState::below);
  EXPECT_EQ(host_.tiers().num_slots(), kNumHostSlots);
  flaws_->hangs = true;
  EXPECT_TRUE(host_.tiers().bring_up(host_keys(1, 1)));
  EXPECT_EQ(host_.state_of(1), OffloadState::coming);
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 1)), std::nullopt) << "the block is on its way";
  host_.tiers().complete_store(host_keys(1, 1), false);
  EXPECT_EQ(host_.state_of(1), OffloadState::coming) << "the end of an older store does not end the read";
  flaws_->hangs = false;
  EXPECT_TRUE(host_.comes_to(1, OffloadState::stored));
  EXPECT_FALSE(host_.tiers().bring_up(host_keys(1, 1))) << "nothing is on its way";
}

TEST_F(TieredOffloadTest, BringsUpBlocksIntoAtMostHalfOfTheSlots) {
  host_.store_to_folder(1, 6, 6);
  host_.store_to_folder(101, kNumHostSlots, 14);
  flaws_->hangs = true;
  EXPECT_TRUE(host_.tiers().bring_up(host_keys(1, 6)));
  const auto num_of = [&](OffloadState state) { return std::ranges::count(host_.tiers().find(host_keys(1, 6)), state); };
  EXPECT_EQ(num_of(OffloadState::coming), 4);
  EXPECT_EQ(num_of(OffloadState::below), 2);
  EXPECT_TRUE(host_.tiers().bring_up(host_keys(1, 6))) << "four blocks are on their way";
  EXPECT_EQ(num_of(OffloadState::coming), 4);
  EXPECT_TRUE(host_.tiers().bring_up(host_keys(5, 1))) << "the request must ask again";
  EXPECT_EQ(host_.state_of(5), OffloadState::below);
  flaws_->hangs = false;
  EXPECT_EQ(host_.load(1, 6), 6U);
  EXPECT_EQ(host_.tiers().stats().num_read, 6U);
}

TEST_F(TieredOffloadTest, BringsUpBlocksAroundTheBlocksThatHostMemoryHas) {
  host_.store_to_folder(1, 3, 3);
  host_.store_to_folder(101, kNumHostSlots, 11);
  EXPECT_EQ(host_.load(2, 1), 1U);
  EXPECT_EQ(host_.state_of(1), OffloadState::below);
  EXPECT_EQ(host_.load(1, 3), 3U);
  EXPECT_EQ(host_.tiers().stats().num_read, 3U) << "each block is read once";
}

TEST_F(TieredOffloadTest, BringsUpNothingAfterABlockThatIsMissingOrBeingStored) {
  host_.store_to_folder(2, 1, 1);
  host_.store_to_folder(101, kNumHostSlots, 9);
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 2)), 0U) << "no tier has the first block";
  EXPECT_EQ(host_.state_of(2), OffloadState::below);
  host_.begin_store(1);
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 2)), 0U) << "a request is storing the first block";
  EXPECT_EQ(host_.state_of(2), OffloadState::below);
}

TEST_F(TieredOffloadTest, BringsUpAsManyBlocksAsFindRoom) {
  host_.store_to_folder(1, 4, 4);
  host_.store_to_folder(101, kNumHostSlots, 12);
  for (std::uint64_t i = 201; i <= 206; ++i) host_.begin_store(i);
  flaws_->hangs = true;
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 4)), std::nullopt);
  EXPECT_EQ(host_.tiers().find(host_keys(1, 4)),
            (std::vector<OffloadState>{OffloadState::coming, OffloadState::coming, OffloadState::below, OffloadState::below}));
  flaws_->hangs = false;
  EXPECT_TRUE(host_.comes_to(2, OffloadState::stored));
  for (std::uint64_t i = 207; i <= 208; ++i) host_.begin_store(i);
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 4)), 0U) << "all slots are being stored to";
}

// Prompts that evict each other from a small host memory are computed instead of waiting forever.
TEST_F(TieredOffloadTest, BringsUpABlockTwiceUntilItIsLoadedOrStored) {
  host_.store_to_folder(1, 1, 1);
  std::uint64_t next = 100;
  std::uint32_t num_held = 1;
  const auto push_out = [&] { host_.store_to_folder(next += 10, kNumHostSlots, num_held += kNumHostSlots); };
  const auto comes_up_unused = [&] {
    EXPECT_TRUE(host_.tiers().bring_up(host_keys(1, 1)));
    EXPECT_TRUE(host_.comes_to(1, OffloadState::stored));
    push_out();
  };
  push_out();
  comes_up_unused();
  EXPECT_EQ(host_.load(1, 1), 1U) << "a load resets the count";
  push_out();
  comes_up_unused();
  EXPECT_EQ(host_.state_of(1), OffloadState::below);
  comes_up_unused();
  EXPECT_EQ(host_.state_of(1), OffloadState::absent) << "it came up twice and was not loaded";
  EXPECT_EQ(host_.tiers().lookup(host_keys(1, 1)), 0U);
  host_.store(1, 1);
  push_out();
  EXPECT_EQ(host_.state_of(1), OffloadState::below) << "a request has stored it again";
}

TEST_F(TieredOffloadTest, StoresABlockInTheFolderOnce) {
  host_.store_to_folder(1, 1, 1);
  EXPECT_TRUE(host_.tiers().discard(host_key(1)));
  EXPECT_FALSE(host_.tiers().discard(host_key(1)));
  EXPECT_EQ(host_.state_of(1), OffloadState::below);
  host_.store(1, 1);
  host_.store_to_folder(2, 1, 2);
  EXPECT_EQ(host_.tiers().stats().num_written, 2U) << "the blocks are written in order, so the first one is not written again";
}

TEST_F(TieredOffloadTest, KeepsUsedBlocksInHostMemory) {
  host_.store_to_folder(1, kNumHostSlots, kNumHostSlots);
  host_.tiers().touch(host_keys(1, 2));
  host_.store(101, 6);
  EXPECT_EQ(host_.state_of(1), OffloadState::stored);
  EXPECT_EQ(host_.state_of(2), OffloadState::stored);
  EXPECT_EQ(host_.state_of(3), OffloadState::below);
}

TEST(TieredOffload, StoresOnlyBlocksThatWereLookedUpOftenEnough) {
  for (const std::int64_t threshold : {0, 1, 2, 3}) {
    SCOPED_TRACE(threshold);
    const auto flaws = std::make_shared<test::Flaws>();
    TieredHost host(std::make_shared<test::MemoryDisk>(), flaws,
                    [&](TieredOffloadOptions& options) { options.host.store_threshold = threshold; });
    for (std::int64_t count = 0; count < threshold && threshold >= 2; ++count) {
      EXPECT_TRUE(host.tiers().prepare_store(host_keys(1, 1)).value().keys.empty());
      if (count % 2 == 0)
        EXPECT_EQ(host.tiers().lookup(host_keys(1, 1)), 0U);
      else
        host.tiers().count(host_keys(1, 1));
    }
    host.store_to_folder(1, 1, 1);
  }
}

TEST(TieredOffload, ReportsEventsOfHostMemory) {
  for (const bool is_on : {false, true}) {
    TieredHost host(std::make_shared<test::MemoryDisk>(), std::make_shared<test::Flaws>(),
                    [&](TieredOffloadOptions& options) { options.host.enable_events = is_on; });
    host.store(1, 2);
    EXPECT_TRUE(host.tiers().discard(host_key(2)));
    ASSERT_EQ(host.tiers().num_events(), is_on ? 2U : 0U);
    if (!is_on) continue;
    EXPECT_TRUE(std::ranges::equal(host.tiers().event(0).keys, host_keys(1, 2)));
    EXPECT_FALSE(host.tiers().event(0).removed);
    EXPECT_TRUE(std::ranges::equal(host.tiers().event(1).keys, host_keys(2, 1)));
    EXPECT_TRUE(host.tiers().event(1).removed);
    host.tiers().clear_events();
    EXPECT_EQ(host.tiers().num_events(), 0U);
  }
}

TEST_F(TieredOffloadTest, NamesTheOptionThatIsWrong) {
  const auto refusal = [&](const std::function<void(TieredOffloadOptions&)>& change) {
    TieredOffloadOptions options = host_.basic_options();
    change(options);
    const auto opened = TieredOffload::open_on(std::make_unique<test::FlakyFiles>(std::make_shared<test::MemoryDisk>(), flaws_), options);
    return opened ? std::string() : opened.error().to_string();
  };
  EXPECT_EQ(refusal([](TieredOffloadOptions&) {}), "");
  EXPECT_EQ(refusal([](TieredOffloadOptions& options) { options.host.restores = true; }),
            "restores: host memory is empty at the start, so no blocks can be restored; leave it out");
  EXPECT_EQ(refusal([](TieredOffloadOptions& options) { options.pages.clear(); }),
            "pages: a block has a size of 0 bytes; pass the tensors of all workers");
  EXPECT_TRUE(refusal([](TieredOffloadOptions& options) { options.host.num_slots = -1; }).starts_with("num_slots: -1 is out of range"));
  EXPECT_TRUE(refusal([](TieredOffloadOptions& options) {
                options.host.store_threshold = 2;
                options.host.max_tracked_keys = 0;
              }).starts_with("max_tracked_keys: 0 is out of range"));
  EXPECT_TRUE(refusal([](TieredOffloadOptions& options) {
                options.budget_bytes = 1000;
              }).starts_with("budget_bytes: 1000 bytes are too small for one block"));
  TieredOffloadOptions options = host_.basic_options();
  options.folder = "/proc/nowhere";
  EXPECT_EQ(TieredOffload::open(options).error().field, "folder");
}

}  // namespace
}  // namespace quire
