#include "runtime/tier/disk_slots.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

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

constexpr std::uint32_t kSlotBytes = 4000;

TierJob slot_job(TierJob::Verb verb, std::uint32_t place, std::uint64_t number, std::uint32_t bytes = kSlotBytes) {
  return {.verb = verb, .place = place, .name = tier_name(number), .bytes = bytes, .copy = {}, .over = {}};
}

// Slots on a disk in memory. Each object is one opening of the tier.
struct SlotRig {
  explicit SlotRig(std::shared_ptr<MemoryDisk> on, bool reads_all = true, std::uint64_t budget = 1 << 20)
      : disk(std::move(on)),
        files(disk),
        tier(open_tier(files, {.budget_bytes = budget, .place_bytes = 4096, .fingerprint = tier_fingerprint()}).value()),
        slots(files, tier) {
    while (reads_all && slots.read_more()) {
    }
  }
  void store(std::uint32_t place, std::uint64_t number) {
    const TierJob job = slot_job(TierJob::Verb::store, place, number);
    Checksum checksum{};
    checksum[0] = static_cast<std::uint8_t>(number);
    ASSERT_TRUE(slots.claim_to_store(job, checksum)) << place;
    ASSERT_TRUE(slots.end_store(job, true)) << place;
  }
  std::optional<Checksum> claim(std::uint32_t place, std::uint64_t number, std::uint32_t bytes = kSlotBytes) {
    return slots.claim_to_load(slot_job(TierJob::Verb::load, place, number, bytes));
  }

  std::shared_ptr<MemoryDisk> disk;
  MemoryFiles files;
  OpenedTier tier;
  DiskSlots slots;
};

TEST(DiskSlotsTest, FindTheBlocksOfEarlierOpeningsWithTheirOrder) {
  const auto disk = std::make_shared<MemoryDisk>();
  std::uint64_t last_sequence = 0;
  for (std::uint64_t opening = 1; opening <= 3; ++opening) {
    SlotRig rig(disk);
    EXPECT_EQ(rig.slots.num_places(), rig.tier.num_places);
    EXPECT_EQ(rig.slots.header(), rig.tier.header);
    std::vector<RestoredBlock> found;
    EXPECT_EQ(rig.slots.restored(0, found), rig.tier.num_places);
    ASSERT_EQ(found.size(), 2 * (opening - 1));
    EXPECT_EQ(rig.slots.stats().num_restored, 2 * (opening - 1));
    for (std::uint64_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].place, 10 * (1 + i / 2) + i % 2);
      EXPECT_EQ(found[i].name, tier_name(found[i].place));
      EXPECT_EQ(found[i].bytes, kSlotBytes);
      EXPECT_LE(found[i].sequence, last_sequence);
      if (i > 0) EXPECT_GT(found[i].sequence, found[i - 1].sequence);
    }
    rig.store(static_cast<std::uint32_t>(10 * opening), 10 * opening);
    rig.store(static_cast<std::uint32_t>(10 * opening + 1), 10 * opening + 1);
    const RestoredBlock newest = rig.slots.next_held_block(static_cast<std::uint32_t>(10 * opening + 1)).value();
    EXPECT_GT(newest.sequence, last_sequence) << "later stores have greater numbers";
    EXPECT_EQ(newest.sequence, (opening << 40U) + 2);
    last_sequence = newest.sequence;
    found.clear();
    rig.slots.restored(0, found);
    EXPECT_EQ(found.size(), 2 * (opening - 1)) << "blocks of this opening were not restored";
  }
}

TEST(DiskSlotsTest, ReadTheTableInParts) {
  const auto disk = std::make_shared<MemoryDisk>();
  constexpr std::uint64_t kBudget = 6 << 20;
  std::uint32_t num_places = 0;
  {
    SlotRig rig(disk, true, kBudget);
    num_places = rig.slots.num_places();
    ASSERT_GT(num_places, 1024U);
    for (const std::uint32_t place : {0U, 511U, 512U, 1023U, 1024U, num_places - 1}) rig.store(place, place);
  }
  SlotRig rig(disk, false, kBudget);
  std::vector<RestoredBlock> found;
  EXPECT_EQ(rig.slots.restored(0, found), 0U) << "nothing was read yet";
  EXPECT_FALSE(rig.claim(0, 0)) << "an unread slot has no block";
  EXPECT_TRUE(rig.slots.read_more());
  EXPECT_TRUE(rig.claim(0, 0));
  EXPECT_TRUE(rig.claim(511, 511));
  EXPECT_FALSE(rig.claim(512, 512));
  EXPECT_EQ(rig.slots.restored(0, found), 512U);
  EXPECT_EQ(found.size(), 2U);
  // A store to a slot that was not read replaces its block.
  rig.store(1023, 7);
  EXPECT_TRUE(rig.slots.read_more());
  EXPECT_EQ(rig.slots.restored(512, found), 1024U);
  EXPECT_EQ(found.size(), 3U) << "the new block in slot 1023 was not restored";
  EXPECT_TRUE(rig.claim(1023, 7));
  EXPECT_FALSE(rig.claim(1023, 1023));
  EXPECT_TRUE(rig.slots.read_more());
  EXPECT_FALSE(rig.slots.read_more());
  EXPECT_EQ(rig.slots.restored(1024, found), num_places);
  EXPECT_EQ(found.size(), 5U);
  EXPECT_EQ(rig.slots.restored(num_places, found), num_places);
  EXPECT_EQ(found.size(), 5U);
  EXPECT_EQ(rig.slots.stats().num_restored, 5U);
  EXPECT_EQ(rig.slots.stats().num_entries_refused, 0U);
}

TEST(DiskSlotsTest, InspectAtMost4096SlotsPerCall) {
  SlotRig rig(std::make_shared<MemoryDisk>(), true, 24 << 20);
  const std::uint32_t num_places = rig.slots.num_places();
  ASSERT_GT(num_places, 5000U);
  std::vector<RestoredBlock> found;
  EXPECT_EQ(rig.slots.restored(0, found), 4096U);
  EXPECT_EQ(rig.slots.restored(5, found), 4101U);
  EXPECT_EQ(rig.slots.restored(4096, found), num_places);
  EXPECT_EQ(rig.slots.restored(num_places, found), num_places);
  EXPECT_TRUE(found.empty());
  rig.store(4096, 1);
  EXPECT_FALSE(rig.slots.next_held_block(0));
  for (const std::uint32_t first : {1U, 4096U, num_places - 1}) {
    const auto block = rig.slots.next_held_block(first);
    EXPECT_EQ(block.has_value(), first != num_places - 1) << first;
    if (block) EXPECT_EQ(block->place, 4096U);
  }
  rig.store(0, 2);
  EXPECT_EQ(rig.slots.next_held_block(num_places - 1).value().place, 0U) << "slot 0 follows the last slot";
}

TEST(DiskSlotsTest, CountSlotsThatCannotBeReadAsRefused) {
  const auto disk = std::make_shared<MemoryDisk>();
  SlotRig rig(disk, false);
  disk->refuses_reads = true;
  while (rig.slots.read_more()) {
  }
  EXPECT_EQ(rig.slots.stats().num_entries_refused, rig.slots.num_places());
  EXPECT_EQ(rig.slots.stats().num_restored, 0U);
  disk->refuses_reads = false;
  rig.store(3, 3);
  EXPECT_TRUE(rig.claim(3, 3)) << "the slots can be used";
}

TEST(DiskSlotsTest, LoadOnlyTheBlockThatWasStored) {
  SlotRig rig(std::make_shared<MemoryDisk>());
  rig.store(3, 5);
  const auto checksum = rig.claim(3, 5);
  ASSERT_TRUE(checksum);
  EXPECT_EQ((*checksum)[0], 5);
  EXPECT_FALSE(rig.claim(3, 6)) << "another key";
  EXPECT_FALSE(rig.claim(3, 5, kSlotBytes - 1)) << "another size";
  EXPECT_FALSE(rig.claim(4, 5)) << "an empty slot";
}

TEST(DiskSlotsTest, EmptyASlotWhoseStoreFailed) {
  const auto disk = std::make_shared<MemoryDisk>();
  SlotRig rig(disk);
  rig.store(3, 5);
  const TierJob other = slot_job(TierJob::Verb::store, 3, 6);
  for (const bool is_written : {false, true}) {
    rig.store(3, 5);
    ASSERT_TRUE(rig.slots.claim_to_store(other, {}));
    // The payload is not written, or its entry is not.
    if (is_written)
      disk->fault = [&, first = disk->num_writes](std::uint64_t write) { return write == first ? Fault::fails : Fault::none; };
    EXPECT_FALSE(rig.slots.end_store(other, is_written));
    disk->fault = {};
    EXPECT_FALSE(rig.claim(3, 5));
    EXPECT_FALSE(rig.claim(3, 6));
    EXPECT_FALSE(rig.slots.next_held_block(0));
    for (std::size_t i = 0; i < kEntryBytes; ++i) ASSERT_EQ(disk->table[entry_offset(3) + i], std::byte{0}) << "the entry is cleared";
  }
}

TEST(DiskSlotsTest, EmptyASlotWhoseBlockDoesNotVerify) {
  const auto disk = std::make_shared<MemoryDisk>();
  SlotRig rig(disk);
  const TierJob load = slot_job(TierJob::Verb::load, 3, 5), other = slot_job(TierJob::Verb::store, 3, 6);
  rig.store(3, 5);
  ASSERT_TRUE(rig.claim(3, 5));
  rig.slots.end_load(load, false, false);
  EXPECT_EQ(rig.slots.stats().num_read, 0U);
  ASSERT_TRUE(rig.claim(3, 5)) << "a read that failed says nothing about the block";
  ASSERT_TRUE(rig.claim(3, 5));
  rig.slots.end_load(load, true, false);
  EXPECT_FALSE(rig.claim(3, 5)) << "the block is lost";
  EXPECT_EQ(disk->table[entry_offset(3)], std::byte{0});
  EXPECT_FALSE(rig.slots.claim_to_store(other, {})) << "the other load still reads the slot";
  rig.slots.end_load(load, true, false);
  EXPECT_TRUE(rig.slots.claim_to_store(other, {}));
  EXPECT_EQ(rig.slots.stats().num_read, 2U);
  EXPECT_EQ(rig.slots.stats().bytes_read, 2U * kSlotBytes);
}

TEST(DiskSlotsTest, FindTheNextBlockInATurn) {
  SlotRig rig(std::make_shared<MemoryDisk>());
  EXPECT_FALSE(rig.slots.next_held_block(0));
  for (const std::uint32_t place : {4U, 9U}) rig.store(place, place);
  for (const auto& [first, next] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 4}, {4, 4}, {5, 9}, {9, 9}, {10, 4}, {rig.slots.num_places() - 1, 4}, {rig.slots.num_places(), 4}}) {
    const auto block = rig.slots.next_held_block(first);
    ASSERT_TRUE(block) << first;
    EXPECT_EQ(block->place, next) << first;
    EXPECT_EQ(block->name, tier_name(next));
    EXPECT_EQ(block->bytes, kSlotBytes);
  }
}

TEST(DiskSlotsTest, CountEachOutcomeOnce) {
  constexpr auto kStore = TierJob::Verb::store, kLoad = TierJob::Verb::load;
  struct Case {
    TierJob::Verb verb;
    TierOutcome outcome;
    // Stored, loaded, bytes stored, bytes loaded, absent, refused, cancelled, failed stores, failed loads.
    std::vector<std::uint64_t> counts;
  };
  for (const Case& one : std::vector<Case>{{kStore, TierOutcome::done, {1, 0, kSlotBytes, 0, 0, 0, 0, 0, 0}},
                                           {kStore, TierOutcome::failed, {0, 0, 0, 0, 0, 0, 0, 1, 0}},
                                           {kStore, TierOutcome::cancelled, {0, 0, 0, 0, 0, 0, 1, 0, 0}},
                                           {kLoad, TierOutcome::done, {0, 1, 0, kSlotBytes, 0, 0, 0, 0, 0}},
                                           {kLoad, TierOutcome::absent, {0, 0, 0, 0, 1, 0, 0, 0, 0}},
                                           {kLoad, TierOutcome::refused, {0, 0, 0, 0, 0, 1, 0, 0, 0}},
                                           {kLoad, TierOutcome::failed, {0, 0, 0, 0, 0, 0, 0, 0, 1}},
                                           {kLoad, TierOutcome::cancelled, {0, 0, 0, 0, 0, 0, 1, 0, 0}}}) {
    SlotRig rig(std::make_shared<MemoryDisk>());
    const TierJob job = slot_job(one.verb, 0, 0);
    rig.slots.count_submitted(job);
    rig.slots.count_finished(job, one.outcome);
    const DiskStoreStats stats = rig.slots.stats();
    EXPECT_EQ((std::vector<std::uint64_t>{stats.num_stored, stats.num_loaded, stats.bytes_stored, stats.bytes_loaded, stats.num_absent,
                                          stats.num_refused, stats.num_cancelled, stats.num_failed_stores, stats.num_failed_loads}),
              one.counts);
    EXPECT_EQ(stats.num_failed(), stats.num_failed_stores + stats.num_failed_loads);
    EXPECT_EQ(stats.loading_s > 0.0, one.verb == kLoad) << "only loads have a time";
  }
}

TEST(DiskSlotsTest, MeasureTheTimeWhileALoadIsOpen) {
  SlotRig rig(std::make_shared<MemoryDisk>());
  const TierJob job = slot_job(TierJob::Verb::load, 0, 0);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const auto begin = std::chrono::steady_clock::now();
  rig.slots.count_submitted(job);
  pause();
  rig.slots.count_submitted(job);
  const double first = rig.slots.stats().loading_s;
  EXPECT_GT(first, 0.0);
  pause();
  rig.slots.count_finished(job, TierOutcome::absent);
  const double second = rig.slots.stats().loading_s;
  EXPECT_GT(second, first);
  pause();
  rig.slots.count_finished(job, TierOutcome::absent);
  const double last = rig.slots.stats().loading_s;
  EXPECT_GT(last, second) << "one load was still open";
  EXPECT_LE(last, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()) << "loads at the same time count once";
  pause();
  rig.slots.count_submitted(job);
  EXPECT_EQ(rig.slots.stats().loading_s, last) << "no load was open";
}

}  // namespace
}  // namespace quire::test
