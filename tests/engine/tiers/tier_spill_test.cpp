#include "engine/tiers/tier_spill.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/simulated_engine.h"
#include "engine/tiers/tier_check.h"
#include "runtime/tier/flaky_files.h"
#include "runtime/tier/tier_support.h"
#include "support/small_cache.h"

namespace quire {
namespace {

constexpr std::uint32_t kSlots = 20;    // in memory
constexpr std::uint32_t kInFlight = 5;  // a quarter of them

OffloadKey key_at(std::uint32_t index) {
  OffloadKey key = test::tier_name(index);
  key.group = 0;
  return key;
}

// Stores blocks in the tier.
void fill(DramTier& tier, const KvLayout& layout, std::uint32_t num_blocks = kSlots) {
  std::vector<std::byte> memory(layout.total_bytes(), std::byte{1});
  tier.transport().attach({.layout = &layout, .tensors = {memory.data()}}, [] {});
  for (std::uint32_t i = 0; i < num_blocks; ++i) {
    ASSERT_TRUE(tier.offload().adopt(key_at(i)));
    tier.offload().adopted(key_at(i), true);
    const std::vector<std::uint64_t> places{tier.offload().hold(key_at(i)).value()};
    const std::vector<BlockId> blocks{BlockId{i}};
    tier.transport().start({.id = TransferId{i}, .request = {}, .direction = TransferDirection::store, .blocks = blocks, .places = places});
    tier.transport().wait(TransferId{i});
    tier.offload().release(key_at(i));
  }
  std::vector<TransferCompletion> over;
  tier.transport().poll(over);
  EXPECT_EQ(over.size(), num_blocks);
  tier.transport().detach();
}

// A tier in memory with some stored blocks above a disk.
struct SpillRig {
  explicit SpillRig(std::uint32_t num_blocks = kSlots, std::uint32_t num_disk_slots = kSlots, std::uint32_t num_memory_slots = kSlots) {
    memory = DramTier::create({.bytes = num_memory_slots * test::kSmallBlockBytes, .policy = KvTierPolicy::exact}, config, layout).value();
    fill(*memory, layout, num_blocks);
    disk = OffloadConnector::create(
               tier_connector_options(num_disk_slots * test::kSmallBlockBytes, KvDiskOptions{.policy = KvTierPolicy::exact}, config),
               config, test::kSmallBlockBytes)
               .value();
    spill = std::make_unique<TierSpill>(memory, *disk, store, group_block_bytes(layout));
    spill->set_notify([this] { ++num_over; });
  }
  // Waits until this many blocks are over since the start.
  bool comes_to(std::uint32_t count) {
    return test::comes_true([&] { return num_over == count; });
  }
  [[nodiscard]] std::uint32_t num_on_disk() const {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kSlots; ++i) count += disk->ledger().ref_count(key_at(i)) == 0 ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::uint32_t num_held() const {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kSlots; ++i) count += memory->offload().ledger().ref_count(key_at(i)) == 1 ? 1 : 0;
    return count;
  }

  std::atomic<std::uint32_t> num_over = 0;
  const CoreConfig config = resolve_options(test::small_cache(), simulated_model(), {1, 0}).value().core;
  const KvLayout layout = test::small_layout();
  std::shared_ptr<DramTier> memory;
  const std::shared_ptr<test::Flaws> flaws = std::make_shared<test::Flaws>();
  std::shared_ptr<DiskStore> store =
      DiskStore::open(std::make_unique<test::FlakyFiles>(std::make_shared<test::MemoryDisk>(), flaws),
                      {.budget_bytes = 1 << 20, .block_bytes = test::kSmallBlockBytes, .fingerprint = test::tier_fingerprint()})
          .value();
  std::unique_ptr<OffloadConnector> disk;
  std::unique_ptr<TierSpill> spill;
};

TEST(TierSpill, FindsOnDiskOnlyTheBlocksThatTheDiskHasWritten) {
  SpillRig rig;
  rig.flaws->fails_writes = true;
  ASSERT_TRUE(rig.spill->maintain(true));
  ASSERT_TRUE(rig.comes_to(kInFlight));
  EXPECT_TRUE(rig.spill->maintain(false));
  EXPECT_EQ(rig.num_on_disk(), 0U) << "no write was successful";
  EXPECT_EQ(rig.spill->num_spilled(), 0U);
  EXPECT_EQ(rig.disk->ledger().num_free(), kSlots);

  rig.flaws->fails_writes = false;
  ASSERT_TRUE(rig.spill->maintain(true));
  ASSERT_TRUE(rig.comes_to(2 * kInFlight));
  EXPECT_EQ(rig.num_on_disk(), 0U) << "the blocks are still in flight";
  EXPECT_EQ(rig.num_held(), kInFlight) << "memory keeps them until the disk has them";
  EXPECT_TRUE(rig.spill->maintain(false));
  EXPECT_EQ(rig.num_on_disk(), kInFlight);
  EXPECT_EQ(rig.num_held(), 0U);
  EXPECT_EQ(rig.spill->num_spilled(), kInFlight);
  EXPECT_EQ(rig.store->stats().bytes_stored, kInFlight * test::kSmallBlockBytes);
  EXPECT_FALSE(rig.spill->maintain(false)) << "nothing else has ended";
}

TEST(TierSpill, StopsWhenHalfOfTheMemoryIsReadyForEviction) {
  SpillRig rig;
  for (std::uint32_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(rig.spill->maintain(true));
    ASSERT_TRUE(rig.comes_to(round * kInFlight));
    EXPECT_TRUE(rig.spill->maintain(false));
  }
  EXPECT_EQ(rig.num_on_disk(), kSlots / TierSpill::kReadyShare);
  EXPECT_FALSE(rig.spill->maintain(true)) << "the next victims are on disk";
  for (std::uint32_t i = 0; i < kSlots / 2; ++i) EXPECT_EQ(rig.disk->ledger().ref_count(key_at(i)), 0) << "the coldest blocks";
}

TEST(TierSpill, CountsFreeSlotsAsReady) {
  for (const auto& [num_blocks, num_spilled] : {std::pair(10U, 0U), {11U, 1U}, {13U, 3U}}) {
    SpillRig rig(num_blocks);
    EXPECT_EQ(rig.spill->maintain(true), num_spilled > 0);
    EXPECT_EQ(rig.num_held(), num_spilled);
    EXPECT_TRUE(rig.comes_to(num_spilled));
  }
}

TEST(TierSpill, StoresAtMostAQuarterOfTheSlotsAtATime) {
  SpillRig rig;
  rig.flaws->hangs = true;
  EXPECT_TRUE(rig.spill->maintain(true));
  EXPECT_EQ(rig.num_held(), kInFlight);
  EXPECT_FALSE(rig.spill->maintain(true)) << "the disk hangs";
  EXPECT_EQ(rig.num_held(), kInFlight);
  rig.flaws->hangs = false;
  EXPECT_TRUE(rig.comes_to(kInFlight));
}

TEST(TierSpill, StoresOneBlockAtATimeOfASmallMemory) {
  for (const auto& [num_slots, num_ready] : {std::pair(1U, 1U), {2U, 1U}, {3U, 1U}, {4U, 2U}}) {
    SCOPED_TRACE(num_slots);
    SpillRig rig(num_slots, kSlots, num_slots);
    rig.flaws->hangs = true;
    EXPECT_TRUE(rig.spill->maintain(true));
    EXPECT_EQ(rig.num_held(), 1U);
    rig.flaws->hangs = false;
    for (std::uint32_t i = 1; i <= num_slots; ++i) {
      if (i <= num_ready) EXPECT_TRUE(rig.comes_to(i));
      rig.spill->maintain(true);
    }
    EXPECT_EQ(rig.num_on_disk(), num_ready);
    EXPECT_EQ(rig.num_held(), 0U) << "no further block is in flight";
  }
}

TEST(TierSpill, StoresNothingOnADiskThatTakesNoStores) {
  SpillRig rig;
  EXPECT_FALSE(rig.spill->maintain(false));
  EXPECT_EQ(rig.num_held(), 0U);
}

TEST(TierSpill, StoresAsManyBlocksAsTheDiskHasRoomFor) {
  SpillRig rig(kSlots, 2);
  rig.flaws->hangs = true;
  EXPECT_TRUE(rig.spill->maintain(true));
  EXPECT_EQ(rig.num_held(), 2U);
  EXPECT_EQ(rig.disk->ledger().num_free(), 0U);
  rig.flaws->hangs = false;
  EXPECT_TRUE(rig.comes_to(2));
}

TEST(TierSpill, CallsNothingAfterItsEnd) {
  SpillRig rig;
  rig.flaws->hangs = true;
  EXPECT_TRUE(rig.spill->maintain(true));
  rig.spill.reset();
  rig.flaws->hangs = false;
  rig.store.reset();  // ends all writes
  EXPECT_EQ(rig.num_over, 0U);
}

}  // namespace
}  // namespace quire
