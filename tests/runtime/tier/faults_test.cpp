// The store never reads a wrong block, whatever the disk does: errors, torn and lost writes, power losses, flipped bits and swapped blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/tier/memory_files.h"
#include "runtime/tier/tier_support.h"
#include "support/sanitized.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kBytes = 8000;  // 192 more fill the second page
constexpr std::uint64_t kPlaceBytes = 8192;
constexpr std::uint32_t kNumbers = 40;

DiskStoreOptions tiny_tier() {
  return {.budget_bytes = 110'000, .block_bytes = kBytes, .fingerprint = tier_fingerprint()};
}

TierClient open_memory(const std::shared_ptr<MemoryDisk>& disk, const DiskStoreOptions& options = tiny_tier()) {
  return {std::make_unique<MemoryFiles>(disk), options};
}

using Held = std::map<std::uint32_t, std::uint64_t>;  // blocks that were reported as stored: number by slot

// Overwrites blocks with other blocks and loads some of them.
Held play(const std::shared_ptr<MemoryDisk>& disk, std::uint64_t seed) {
  Held held;
  TierClient store = open_memory(disk);
  if (!store.is_open()) return held;
  Random random(seed);
  for (std::uint64_t number = 0; number < kNumbers; ++number) {
    const auto place = static_cast<std::uint32_t>(random.below(store->num_places()));
    held.erase(place);
    if (store.store(place, number) == TierOutcome::done) held[place] = number;
    if (held.empty()) continue;
    const auto& [known, stored] = *std::next(held.begin(), static_cast<std::ptrdiff_t>(random.below(held.size())));
    EXPECT_NE(store.load(known, stored), Loaded::wrong);
  }
  return held;
}

// Returns how many blocks another process finds. None of them may be wrong.
std::uint32_t count_right(const std::shared_ptr<MemoryDisk>& disk, const Held* held = nullptr) {
  TierClient store = open_memory(disk);
  EXPECT_TRUE(store.is_open()) << store.error().to_string();
  std::vector<std::pair<std::uint32_t, std::uint64_t>> found;
  for (const RestoredBlock& block : store.restored())
    for (std::uint64_t number = 0; number < kNumbers; ++number)
      if (tier_name(number) == block.name) found.emplace_back(block.place, number);
  const std::vector<Loaded> loaded = store.load_all(found);
  std::uint32_t num_right = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [place, number] = found[i];
    EXPECT_TRUE(loaded[i] == Loaded::right || loaded[i] == Loaded::refused) << "a load returned the bytes of another block";
    const bool is_known = held == nullptr || (held->contains(place) && held->at(place) == number);
    num_right += loaded[i] == Loaded::right && is_known ? 1 : 0;
  }
  return num_right;
}

std::uint64_t count_writes() {
  const auto disk = std::make_shared<MemoryDisk>();
  play(disk, 1);
  return disk->num_writes;
}

TEST(TierFaultsTest, LosesAtMostOneBlockWhenAWriteFails) {
  const std::uint64_t num_writes = count_writes();
  EXPECT_EQ(num_writes, 2 + 2 * kNumbers) << "two writes for the header, then a payload and an entry per block";
  for (std::uint64_t at = 0; at < num_writes; ++at)
    for (const Fault fault : {Fault::fails, Fault::torn, Fault::lost}) {
      const auto disk = std::make_shared<MemoryDisk>();
      disk->fault = [&](std::uint64_t write) { return write == at ? fault : Fault::none; };
      const Held held = play(disk, 1);
      disk->fault = {};
      const std::uint32_t num_lost = fault == Fault::lost ? 1 : 0;
      EXPECT_GE(count_right(disk, &held) + num_lost, held.size()) << "write " << at;
    }
}

TEST(TierFaultsTest, LosesNoStoredBlockWhenTheProcessEndsAtAnyWrite) {
  for (std::uint64_t at = 1; at < count_writes(); ++at) {
    const auto disk = std::make_shared<MemoryDisk>();
    disk->fault = [&](std::uint64_t write) { return write < at ? Fault::none : Fault::dead; };
    const Held held = play(disk, 1);
    disk->fault = {};
    EXPECT_GE(count_right(disk, &held), held.size()) << "write " << at;
  }
}

TEST(TierFaultsTest, ReadsNoWrongBlockAfterAPowerLossAtAnyWrite) {
  std::uint64_t num_right = 0;
  Random random(5);
  for (std::uint64_t at = 1; at < count_writes(); ++at) {
    const auto disk = std::make_shared<MemoryDisk>();
    play(disk, 2);  // blocks of an earlier run are the most dangerous wrong content
    disk->synchronise();
    const std::uint64_t begin = disk->num_writes;
    disk->fault = [&](std::uint64_t write) { return write < begin + at ? Fault::none : Fault::dead; };
    play(disk, 1);
    for (int i = 0; i < (kSanitized ? 2 : 8); ++i) num_right += count_right(std::make_shared<MemoryDisk>(disk->after_power_loss(random)));
  }
  EXPECT_GT(num_right, 100U) << "the test covers too few cases";
}

// A tier that is full except for its last slot. It is opened twice so that both header pages are valid.
class CorruptedTierTest : public testing::Test {
 protected:
  static TierClient open_corrupted(const std::shared_ptr<MemoryDisk>& disk) {
    return open_memory(disk, {.budget_bytes = 400'000, .block_bytes = kBytes, .fingerprint = tier_fingerprint()});
  }
  void SetUp() override {
    const auto disk = std::make_shared<MemoryDisk>();
    for (int i = 0; i < 2; ++i) {
      TierClient store = open_corrupted(disk);
      num_held_ = store->num_places() - 1;
      for (std::uint32_t place = 0; place < num_held_; ++place) ASSERT_EQ(store.store(place, place), TierOutcome::done);
    }
    good_ = *disk;
  }
  [[nodiscard]] std::shared_ptr<MemoryDisk> copy() const { return std::make_shared<MemoryDisk>(good_); }
  // Checks that blocks in `corrupted` are counted misses and that all other blocks are right.
  void expect_misses(const std::shared_ptr<MemoryDisk>& disk, const std::set<std::uint32_t>& corrupted) const {
    TierClient store = open_corrupted(disk);
    ASSERT_TRUE(store.is_open());
    store.restored();
    std::vector<std::pair<std::uint32_t, std::uint64_t>> all;
    for (std::uint32_t place = 0; place < num_held_; ++place) all.emplace_back(place, place);
    const std::vector<Loaded> loaded = store.load_all(all);
    for (std::uint32_t place = 0; place < num_held_; ++place)
      if (!corrupted.contains(place))
        EXPECT_EQ(loaded[place], Loaded::right) << place;
      else
        EXPECT_TRUE(loaded[place] == Loaded::absent || loaded[place] == Loaded::refused) << place;
    const DiskStoreStats stats = store->stats();
    EXPECT_EQ(stats.num_entries_refused + stats.num_refused, corrupted.size());
  }

  MemoryDisk good_;
  std::uint32_t num_held_ = 0;
};

struct Bytes {
  TierFile file;
  std::uint64_t begin, end;
};

// Returns the byte ranges of a slot, one per kind of content.
std::vector<Bytes> bytes_of_place(std::uint32_t place) {
  std::vector<Bytes> kinds;
  const std::uint64_t entry = entry_offset(place);
  const std::uint64_t payload = place * kPlaceBytes;
  // sequence, hash, group, bytes, checksum of the payload, filler, own checksum
  for (std::uint64_t begin = 0; const std::uint64_t end : {8U, 40U, 44U, 48U, 64U, 112U, 128U}) {
    kinds.push_back({TierFile::table, entry + begin, entry + end});
    begin = end;
  }
  // first sector, middle, last sector, page padding
  for (std::uint64_t begin = 0; const std::uint64_t end : {std::uint64_t{512}, kBytes - 512, kBytes, kPlaceBytes}) {
    kinds.push_back({TierFile::blocks, payload + begin, payload + end});
    begin = end;
  }
  return kinds;
}

// One bit is flipped in each of several slots.
TEST_F(CorruptedTierTest, TreatsEachFlippedBitAsAMiss) {
  ASSERT_GE(num_held_, 20U);
  Random random(9);
  const int num_flips = kSanitized ? 2000 : 10'000;
  for (int i = 0; i < num_flips && !HasFailure();) {
    const auto disk = copy();
    std::set<std::uint32_t> corrupted;
    while (corrupted.size() < 10) {
      const auto place = static_cast<std::uint32_t>(random.below(num_held_));
      if (!corrupted.insert(place).second) continue;
      const std::vector<Bytes> kinds = bytes_of_place(place);
      const Bytes& kind = kinds[static_cast<std::size_t>(i++) % kinds.size()];
      disk->of(kind.file)[random.between(kind.begin, kind.end - 1)] ^= std::byte{1} << random.below(8);
    }
    expect_misses(disk, corrupted);
  }
}

TEST_F(CorruptedTierTest, FindsAFlippedBitInAnEmptyEntry) {
  const auto disk = copy();
  disk->table[entry_offset(num_held_) + 77] = std::byte{4};
  TierClient store = open_corrupted(disk);
  EXPECT_EQ(store.restored().size(), num_held_);
  EXPECT_EQ(store->stats().num_entries_refused, 1U);
}

TEST_F(CorruptedTierTest, OpensWithOneHeaderPageAndIsEmptyWithoutAny) {
  Random random(13);
  for (std::uint64_t at = 0; at < 2 * kTierPageBytes; at += random.between(1, 40)) {
    const auto disk = copy();
    disk->table[at] ^= std::byte{1} << random.below(8);
    expect_misses(disk, {});
  }
  const auto disk = copy();
  disk->table[100] ^= std::byte{1};
  disk->table[kTierPageBytes + 100] ^= std::byte{1};
  TierClient store = open_corrupted(disk);
  EXPECT_TRUE(store.restored().empty());
  EXPECT_EQ(store->stats().num_entries_refused, 0U);
  EXPECT_EQ(store.store(0, 3), TierOutcome::done);
  EXPECT_EQ(store.load(0, 3), Loaded::right);
}

void swap_ranges(MemoryDisk& disk, TierFile file, std::uint64_t one, std::uint64_t other, std::uint64_t size) {
  const auto begin = disk.of(file).begin();
  std::swap_ranges(begin + static_cast<std::ptrdiff_t>(one), begin + static_cast<std::ptrdiff_t>(one + size),
                   begin + static_cast<std::ptrdiff_t>(other));
}

TEST_F(CorruptedTierTest, TreatsSwappedBlocksAsMisses) {
  const auto payloads = copy();
  swap_ranges(*payloads, TierFile::blocks, 1 * kPlaceBytes, 3 * kPlaceBytes, kPlaceBytes);
  expect_misses(payloads, {1, 3});
  const auto halves = copy();
  swap_ranges(*halves, TierFile::blocks, 1 * kPlaceBytes, 3 * kPlaceBytes, kPlaceBytes / 2);
  expect_misses(halves, {1, 3});
  const auto entries = copy();
  swap_ranges(*entries, TierFile::table, entry_offset(1), entry_offset(3), kEntryBytes);
  expect_misses(entries, {1, 3});
  const auto both = copy();
  swap_ranges(*both, TierFile::blocks, 1 * kPlaceBytes, 3 * kPlaceBytes, kPlaceBytes);
  swap_ranges(*both, TierFile::table, entry_offset(1), entry_offset(3), kEntryBytes);
  expect_misses(both, {1, 3});
}

TEST_F(CorruptedTierTest, RefusesBlocksOfAnotherTierWithTheSameKeys) {
  const auto disk = std::make_shared<MemoryDisk>();
  {
    TierClient store = open_corrupted(disk);
  }
  disk->blocks = good_.blocks;
  std::copy(good_.table.begin() + 2 * kTierPageBytes, good_.table.end(), disk->table.begin() + 2 * kTierPageBytes);
  TierClient store = open_corrupted(disk);
  EXPECT_TRUE(store.restored().empty());
  EXPECT_EQ(store->stats().num_entries_refused, num_held_);
}

// The checksum of the payload covers the key and the fingerprint, in addition to the checksum of the entry.
TEST(TierTableTest, PayloadChecksumCoversKeySizeAndTier) {
  const std::vector<std::byte> payload = tier_block(1, 4096);
  TierHeader header{.place_bytes = 4096, .fingerprint = tier_fingerprint(), .identity = {1}, .incarnation = 1};
  const OffloadKey name = tier_name(1);
  const Checksum checksum = payload_checksum(header, name, 4000, payload);
  EXPECT_EQ(payload_checksum(header, name, 4000, payload), checksum);
  EXPECT_NE(payload_checksum(header, tier_name(2), 4000, payload), checksum);
  EXPECT_NE(payload_checksum(header, {name.hash, name.group + 1}, 4000, payload), checksum);
  EXPECT_NE(payload_checksum(header, name, 4001, payload), checksum);
  EXPECT_NE(payload_checksum(header, name, 4000, tier_block(2, 4096)), checksum);
  header.fingerprint = tier_fingerprint(8);
  EXPECT_NE(payload_checksum(header, name, 4000, payload), checksum);
  header.fingerprint = tier_fingerprint();
  header.identity = {2};
  EXPECT_NE(payload_checksum(header, name, 4000, payload), checksum);
}

}  // namespace
}  // namespace quire::test
