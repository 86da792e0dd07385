// Tests the folder below host memory: what it writes and when, what it keeps, what it finds of an earlier process, and what it counts.
#include "engine/offload/offload_disk_tier.h"

#include <gtest/gtest.h>

#include "engine/offload/tiered_host.h"

namespace quire {
namespace {

using test::host_key;
using test::host_keys;
using test::kNumHostSlots;
using test::TieredHost;

constexpr std::uint64_t kHostBlock = 2 * test::kHostPageBytes;

class OffloadDiskTierTest : public testing::Test {
 protected:
  // Returns the budget of a folder with room for this many blocks.
  static std::uint64_t budget_of(std::uint32_t num_places) {
    std::uint64_t budget = num_places * padded_to_page(kHostBlock);
    while (num_slots_within(budget, padded_to_page(kHostBlock)) < num_places) budget += 4096;
    return budget;
  }

  const std::shared_ptr<test::MemoryDisk> disk_ = std::make_shared<test::MemoryDisk>();
  const std::shared_ptr<test::Flaws> flaws_ = std::make_shared<test::Flaws>();
};

TEST_F(OffloadDiskTierTest, CountsWhatItWritesAndReads) {
  TieredHost host(disk_, flaws_, [](TieredOffloadOptions& options) { options.budget_bytes = budget_of(30); });
  host.store_to_folder(1, 3, 3);
  host.store_to_folder(101, kNumHostSlots, 11);
  EXPECT_EQ(host.load(1, 3), 3U);
  const TieredOffloadStats stats = host.tiers().stats();
  EXPECT_EQ(stats.num_places, 30U);
  EXPECT_EQ(stats.num_held, 11U);
  EXPECT_EQ(stats.num_restored, 0U);
  EXPECT_EQ(stats.num_written, 11U);
  EXPECT_EQ(stats.bytes_written, 11 * kHostBlock);
  EXPECT_EQ(stats.num_read, 3U);
  EXPECT_EQ(stats.bytes_read, 3 * kHostBlock);
  EXPECT_GT(stats.reading_s, 0.0);
  EXPECT_EQ(stats.num_refused, 0U);
  EXPECT_EQ(stats.num_failed, 0U);
  EXPECT_EQ(stats.num_dropped, 0U);
  EXPECT_FALSE(stats.loads_left_out);
  EXPECT_FALSE(stats.stores_left_out);
}

TEST_F(OffloadDiskTierTest, FindsTheBlocksOfAnEarlierProcess) {
  {
    TieredHost(disk_, flaws_).store_to_folder(1, 5, 5);
  }
  TieredHost host(disk_, flaws_);
  host.wait([](const TieredOffloadStats& stats) { return stats.num_held == 5; });
  EXPECT_EQ(host.tiers().stats().num_restored, 5U);
  EXPECT_EQ(host.state_of(1), OffloadState::below);
  EXPECT_EQ(host.load(1, 6), 5U);
}

TEST_F(OffloadDiskTierTest, IgnoresBlocksOfAnotherSize) {
  {
    TieredHost(disk_, flaws_).store_to_folder(1, 5, 5);
  }
  TieredHost host(disk_, flaws_, [](TieredOffloadOptions& options) { options.pages[1].page_bytes -= 8; });
  // A block is written only after the table of the folder has been read.
  host.store(101, 1);
  host.wait([](const TieredOffloadStats& stats) { return stats.num_written == 1 && stats.num_held > 0; });
  EXPECT_EQ(host.tiers().stats().num_restored, 5U);
  EXPECT_EQ(host.tiers().stats().num_held, 1U);
  EXPECT_EQ(host.state_of(1), OffloadState::absent);
}

TEST_F(OffloadDiskTierTest, CountsBlocksWhoseBytesHaveChanged) {
  {
    TieredHost(disk_, flaws_).store_to_folder(1, 2, 2);
  }
  for (std::byte& byte : disk_->blocks) byte ^= std::byte{4};
  TieredHost host(disk_, flaws_);
  host.wait([](const TieredOffloadStats& stats) { return stats.num_held == 2; });
  EXPECT_EQ(host.load(1, 2), 0U);
  EXPECT_EQ(host.tiers().stats().num_refused, 2U);
  EXPECT_EQ(host.tiers().stats().num_read, 0U);
  EXPECT_EQ(host.tiers().stats().num_held, 0U);
}

TEST_F(OffloadDiskTierTest, WritesABlockWhenAllWorkersHaveCopiedIt) {
  std::vector<std::uint64_t> second(kNumHostSlots);
  TieredHost host(disk_, flaws_, [&](TieredOffloadOptions& options) { options.written.push_back(second.data()); });
  const auto [slot, number] = host.begin_store(1);
  const auto [other_slot, other_number] = host.begin_store(2);
  EXPECT_GT(other_number, number) << "no number is used twice";
  host.copy(1, slot, number);
  host.copy(2, other_slot, other_number);
  __atomic_store_n(&second[other_slot.value], other_number, __ATOMIC_RELEASE);
  host.wait([](const TieredOffloadStats& stats) { return stats.num_held == 1; });
  EXPECT_EQ(host.tiers().stats().num_written, 1U) << "the second worker has not copied the first block";
  __atomic_store_n(&second[slot.value], number, __ATOMIC_RELEASE);
  host.wait([](const TieredOffloadStats& stats) { return stats.num_held == 2; });
}

TEST_F(OffloadDiskTierTest, WritesOnlyTheLastBlockOfASlot) {
  TieredHost host(disk_, flaws_, [](TieredOffloadOptions& options) { options.host.num_slots = 1; });
  host.begin_store(1);
  host.tiers().complete_store(host_keys(1, 1), false);
  EXPECT_EQ(host.tiers().stats().num_dropped, 0U);
  host.store_to_folder(2, 1, 1);
  EXPECT_EQ(host.tiers().stats().num_dropped, 1U) << "the slot was given away before a worker copied the first block";
  host.store_to_folder(3, 1, 2);
  EXPECT_EQ(host.tiers().stats().num_written, 2U);
  EXPECT_EQ(host.tiers().stats().num_dropped, 1U);
  EXPECT_EQ(host.state_of(1), OffloadState::absent);
  EXPECT_EQ(host.state_of(2), OffloadState::below);
}

TEST_F(OffloadDiskTierTest, ReadsNoBlockIntoASlotThatAWorkerMayStillWrite) {
  TieredHost host(disk_, flaws_, [](TieredOffloadOptions& options) { options.host.num_slots = 1; });
  host.store_to_folder(1, 1, 1);
  host.store_to_folder(2, 1, 2);
  const auto [slot, number] = host.begin_store(3);
  host.tiers().complete_store(host_keys(3, 1), false);
  EXPECT_TRUE(host.tiers().bring_up(host_keys(1, 1)));
  EXPECT_EQ(host.state_of(1), OffloadState::below) << "the worker has not written the number of block 3";
  host.copy(3, slot, number);
  EXPECT_EQ(host.load(1, 1), 1U) << "a tier with one slot uses it";
}

TEST_F(OffloadDiskTierTest, CountsBlocksThatLeftHostMemoryBeforeTheyWereWritten) {
  TieredHost host(disk_, flaws_);
  host.store_to_folder(301, 1, 1);
  flaws_->hangs = true;
  host.store(1, kNumHostSlots);
  EXPECT_EQ(host.tiers().stats().num_dropped, 0U) << "the folder has block 301";
  host.store(101, kNumHostSlots);
  EXPECT_EQ(host.tiers().stats().num_dropped, kNumHostSlots);
  EXPECT_EQ(host.state_of(1), OffloadState::absent);
  EXPECT_EQ(host.load(101, kNumHostSlots), kNumHostSlots);
  flaws_->hangs = false;
}

// The folder has room for twelve blocks, and a load counts as a use there, too.
TEST_F(OffloadDiskTierTest, EvictsTheLeastRecentlyUsedBlockFromTheFolder) {
  TieredHost host(disk_, flaws_, [](TieredOffloadOptions& options) { options.budget_bytes = budget_of(12); });
  host.store_to_folder(1, kNumHostSlots, kNumHostSlots);
  EXPECT_EQ(host.load(1, 2), 2U);
  EXPECT_EQ(host.tiers().stats().num_read, 0U) << "host memory has the blocks";
  for (std::uint64_t i = 0; i < 11; ++i) {
    host.store(101 + i, 1);
    host.wait([i](const TieredOffloadStats& stats) { return stats.num_written == kNumHostSlots + i + 1; });
  }
  host.wait([](const TieredOffloadStats& stats) { return stats.num_held == 12; });
  EXPECT_EQ(host.state_of(1), OffloadState::below);
  for (std::uint64_t i = 2; i <= kNumHostSlots; ++i) EXPECT_EQ(host.state_of(i), OffloadState::absent) << i;
}

TEST_F(OffloadDiskTierTest, FreesThePlaceOfABlockWhoseWriteFailed) {
  TieredHost host(disk_, flaws_, [](TieredOffloadOptions& options) { options.budget_bytes = budget_of(2); });
  flaws_->fails_writes = true;
  host.store(1, 2);
  host.wait([](const TieredOffloadStats& stats) { return stats.num_failed == 2; });
  EXPECT_EQ(host.tiers().stats().num_held, 0U);
  flaws_->fails_writes = false;
  host.store_to_folder(3, 2, 2);
}

TEST_F(OffloadDiskTierTest, ReadsNothingWhileReadsFail) {
  TieredHost host(disk_, flaws_);
  host.store_to_folder(1, 7, 7);
  host.store_to_folder(101, kNumHostSlots, 15);
  flaws_->fails_reads = true;
  EXPECT_EQ(host.load(1, 4), 0U);
  host.wait([](const TieredOffloadStats& stats) { return stats.loads_left_out; });
  EXPECT_FALSE(host.tiers().stats().stores_left_out);
  EXPECT_EQ(host.state_of(7), OffloadState::absent);
  flaws_->fails_reads = false;
  host.wait([](const TieredOffloadStats& stats) { return !stats.loads_left_out; });
  EXPECT_EQ(host.load(7, 1), 1U);
}

TEST_F(OffloadDiskTierTest, WritesNothingWhileWritesFail) {
  TieredHost host(disk_, flaws_);
  flaws_->fails_writes = true;
  host.store(1, 4);
  host.wait([](const TieredOffloadStats& stats) { return stats.stores_left_out; });
  EXPECT_FALSE(host.tiers().stats().loads_left_out);
  EXPECT_GE(host.tiers().stats().num_failed, 3U);
  flaws_->fails_writes = false;
  host.store(11, 2);
  host.wait([](const TieredOffloadStats& stats) { return !stats.stores_left_out && stats.num_held == 2; });
}

}  // namespace
}  // namespace quire
