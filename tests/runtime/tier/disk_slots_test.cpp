#include "runtime/tier/disk_slots.h"

#include <gtest/gtest.h>

#include "runtime/tier/memory_files.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

TEST(DiskSlotsTest, LetNoStoreClaimASlotInUse) {
  MemoryFiles files(std::make_shared<MemoryDisk>());
  const OpenedTier tier = open_tier(files, {.budget_bytes = 1 << 20, .place_bytes = 4096, .fingerprint = tier_fingerprint()}).value();
  DiskSlots slots(files, tier);
  while (slots.read_more()) {
  }
  const TierJob held{.place = 3, .name = tier_name(1), .bytes = 4096, .copy = {}, .over = {}},
      other{.place = 3, .name = tier_name(2), .bytes = 4096, .copy = {}, .over = {}};
  ASSERT_TRUE(slots.claim_to_store(held, {}));
  EXPECT_FALSE(slots.claim_to_store(other, {})) << "a store writes the slot";
  EXPECT_FALSE(slots.claim_to_load(held)) << "the block is not written yet";
  ASSERT_TRUE(slots.end_store(held, true));
  ASSERT_TRUE(slots.claim_to_load(held));
  ASSERT_TRUE(slots.claim_to_load(held)) << "several loads may read a slot";
  EXPECT_FALSE(slots.claim_to_store(other, {})) << "two loads read the slot";
  slots.end_load(held, true, true);
  EXPECT_FALSE(slots.claim_to_store(other, {})) << "one load reads the slot";
  slots.end_load(held, true, true);
  EXPECT_TRUE(slots.claim_to_store(other, {}));
  EXPECT_FALSE(slots.claim_to_load(held));
}

}  // namespace
}  // namespace quire::test
