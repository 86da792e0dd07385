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

// Fills the tier with blocks.
void fill(DramTier& tier, const KvLayout& layout) {
  std::vector<std::byte> memory(layout.total_bytes(), std::byte{1});
  tier.transport().attach({.layout = &layout, .tensors = {memory.data()}}, [] {});
  for (std::uint32_t i = 0; i < kSlots; ++i) {
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
  EXPECT_EQ(over.size(), kSlots);
  tier.transport().detach();
}

TEST(TierSpill, FindsOnDiskOnlyTheBlocksThatTheDiskHasWritten) {
  const CoreConfig config = resolve_options(test::small_cache(), simulated_model(), {1, 0}).value().core;
  const KvLayout layout = test::small_layout();
  const std::shared_ptr<DramTier> memory =
      DramTier::create({.bytes = kSlots * test::kSmallBlockBytes, .policy = KvTierPolicy::exact}, config, layout).value();
  fill(*memory, layout);
  const auto flaws = std::make_shared<test::Flaws>();
  const std::shared_ptr<DiskStore> store =
      DiskStore::open(std::make_unique<test::FlakyFiles>(std::make_shared<test::MemoryDisk>(), flaws),
                      {.budget_bytes = 1 << 20, .block_bytes = test::kSmallBlockBytes, .fingerprint = test::tier_fingerprint()})
          .value();
  const auto disk = OffloadConnector::create(
                        tier_connector_options(kSlots * test::kSmallBlockBytes, KvDiskOptions{.policy = KvTierPolicy::exact}, config),
                        config, test::kSmallBlockBytes)
                        .value();
  TierSpill spill(memory, *disk, store, group_block_bytes(layout));
  std::atomic<std::uint32_t> num_over = 0;
  spill.set_notify([&num_over] { ++num_over; });
  const auto num_on_disk = [&disk] {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < kSlots; ++i) count += disk->ledger().ref_count(key_at(i)) == 0 ? 1 : 0;
    return count;
  };

  flaws->fails_writes = true;
  ASSERT_TRUE(spill.maintain(true));
  ASSERT_TRUE(test::comes_true([&] { return num_over == kInFlight; }));
  EXPECT_TRUE(spill.maintain(false));
  EXPECT_EQ(num_on_disk(), 0U) << "no write was successful";
  EXPECT_EQ(spill.num_spilled(), 0U);
  EXPECT_EQ(disk->ledger().num_free(), kSlots);

  flaws->fails_writes = false;
  ASSERT_TRUE(spill.maintain(true));
  ASSERT_TRUE(test::comes_true([&] { return num_over == 2 * kInFlight; }));
  EXPECT_EQ(num_on_disk(), 0U) << "the blocks are still in flight";
  EXPECT_TRUE(spill.maintain(false));
  EXPECT_EQ(num_on_disk(), kInFlight);
  EXPECT_EQ(spill.num_spilled(), kInFlight);
}

}  // namespace
}  // namespace quire
