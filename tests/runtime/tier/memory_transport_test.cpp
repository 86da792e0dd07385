// Tests the guarantees of slots in host memory, in addition to the contract (transport_contract.h).
#include "runtime/tier/memory_transport.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/tier/toy_cache.h"

namespace quire::test {
namespace {

class MemoryTransportTest : public testing::Test {
 protected:
  MemoryTransportTest() {
    transport_->attach(cache_.pages(), [] {});
  }
  TransferCompletion move(TransferDirection direction, std::uint32_t group, const std::vector<BlockId>& blocks,
                          const std::vector<std::uint64_t>& places) {
    const TransferId id{next_id_++};
    transport_->start({.id = id, .request = {}, .direction = direction, .group = group, .blocks = blocks, .places = places});
    transport_->wait(id);
    over_.clear();
    transport_->poll(over_);
    return over_.at(0);
  }
  TransferOutcome store(std::uint32_t group, BlockId block, std::uint64_t place) {
    return move(TransferDirection::store, group, {block}, {place}).outcome;
  }
  TransferOutcome load(std::uint32_t group, BlockId block, std::uint64_t place) {
    return move(TransferDirection::load, group, {block}, {place}).outcome;
  }

  ToyCache cache_;
  std::unique_ptr<MemoryTransport> transport_ = MemoryTransport::create({.num_places = 8, .block_bytes = 9000}).value();
  std::vector<TransferCompletion> over_;
  std::uint64_t next_id_ = 0;
};

// Slots without keys are identified by their numbers only.
TEST_F(MemoryTransportTest, UsesTheNumberOfASlotThatWasNeverAssigned) {
  for (std::uint32_t place = 0; place < 8; ++place) {
    cache_.fill(BlockId{place + 1}, place);
    EXPECT_EQ(store(place % 2, BlockId{place + 1}, place), TransferOutcome::done);
  }
  cache_.fill(BlockId{3}, 77);
  EXPECT_EQ(store(1, BlockId{3}, 5), TransferOutcome::done) << "a slot is overwritten";
  EXPECT_EQ(transport_->stats().seconds_loaded, 0.0) << "no block was loaded yet";
  for (std::uint32_t place = 0; place < 8; ++place) {
    EXPECT_EQ(load(place % 2, BlockId{20 + place}, place), TransferOutcome::done);
    EXPECT_TRUE(cache_.holds(BlockId{20 + place}, place == 5 ? 77 : place, place % 2));
  }
  EXPECT_EQ(transport_->stats().num_stored, 9U);
  EXPECT_EQ(transport_->stats().bytes_stored, 4U * 9000 + 5U * 6000);
  EXPECT_EQ(transport_->stats().num_loaded, 8U);
  EXPECT_EQ(transport_->stats().bytes_loaded, 4U * 15000);
  EXPECT_TRUE(transport_->stats().seconds_stored > 0.0 && transport_->stats().seconds_loaded > 0.0);
  EXPECT_EQ(transport_->stats().num_absent + transport_->stats().num_refused + transport_->stats().num_in_use, 0U);
}

TEST_F(MemoryTransportTest, ReadsASlotAsItWasStoredOrNotAtAll) {
  cache_.fill(BlockId{1}, 5);
  OffloadKey name;
  name.hash[0] = 9;
  const std::uint64_t number = transport_->assign(2, name);
  std::vector<std::byte> bytes(9000);
  EXPECT_FALSE(transport_->read(number, bytes)) << "the slot is empty";
  ASSERT_EQ(store(0, BlockId{1}, number), TransferOutcome::done);
  EXPECT_TRUE(transport_->read(number, bytes));
  EXPECT_TRUE(std::ranges::equal(bytes, transport_->memory_of(2).first(9000)));
  EXPECT_FALSE(transport_->read(number, std::span(bytes).first(6000))) << "a block of another size";
  ASSERT_EQ(store(0, BlockId{1}, number), TransferOutcome::done);
  transport_->memory_of(2)[17] ^= std::byte{1};
  EXPECT_FALSE(transport_->read(number, bytes)) << "the flipped bit is detected";
  EXPECT_EQ(transport_->stats().num_refused, 2U);
  ASSERT_EQ(store(0, BlockId{1}, number), TransferOutcome::done);
  EXPECT_TRUE(transport_->read(number, bytes));
  EXPECT_TRUE(transport_->holds(number));
  const std::uint64_t again = transport_->assign(2, name);
  EXPECT_FALSE(transport_->read(number, bytes)) << "the old number is no longer valid";
  EXPECT_FALSE(transport_->holds(again) || transport_->read(again, bytes))
      << "the block was stored before the new assignment and may have been dropped";
  ASSERT_EQ(store(0, BlockId{1}, again), TransferOutcome::done);
  EXPECT_TRUE(transport_->holds(again) && transport_->read(again, bytes));
  EXPECT_EQ(transport_->stats().num_absent, 3U) << "the empty slot, the old number, and the new one before its store";
}

TEST_F(MemoryTransportTest, MovesBlocksOnItsThreadsAfterItIsAttachedAgain) {
  transport_->detach();
  transport_->attach(cache_.pages(), [] {});
  for (std::uint64_t id = 100; id < 102; ++id) {
    cache_.fill(BlockId{1}, id);
    const TransferDirection direction = id == 100 ? TransferDirection::store : TransferDirection::load;
    transport_->start({.id = TransferId{id}, .request = {}, .direction = direction, .group = 0, .blocks = {{BlockId{1}}}, .places = {{2}}});
    std::vector<TransferCompletion> over;
    EXPECT_TRUE(comes_true([&] {
      transport_->poll(over);
      return !over.empty();
    }));
    ASSERT_EQ(over.size(), 1U);
    EXPECT_EQ(over[0].outcome, TransferOutcome::done);
  }
  EXPECT_TRUE(cache_.holds(BlockId{1}, 100, 0));
}

// A thread of another module reads while blocks are stored. It reads a whole block, and every store succeeds.
TEST_F(MemoryTransportTest, StoresWhileAnotherThreadReads) {
  OffloadKey name;
  cache_.fill(BlockId{1}, 5);
  std::atomic<std::uint64_t> number = transport_->assign(2, name);
  ASSERT_EQ(store(0, BlockId{1}, number), TransferOutcome::done);
  const std::vector<std::byte> wanted(transport_->memory_of(2).begin(), transport_->memory_of(2).begin() + 9000);
  std::atomic<bool> stops = false;
  std::atomic<std::uint64_t> num_read = 0;
  std::thread reader([&] {
    std::vector<std::byte> bytes(9000);
    while (!stops)
      if (transport_->read(number, bytes)) {
        EXPECT_EQ(bytes, wanted);
        ++num_read;
      }
  });
  for (int i = 0; i < 300 || (num_read < 20 && i < 100'000); ++i) {
    number = transport_->assign(2, name);
    EXPECT_EQ(store(0, BlockId{1}, number), TransferOutcome::done);
  }
  stops = true;
  reader.join();
  EXPECT_GE(num_read, 20U) << "the test covers too few cases";
  EXPECT_EQ(transport_->stats().num_refused, 0U);
}

TEST_F(MemoryTransportTest, ReportsBlocksThatWereNotStoredAsAbsent) {
  EXPECT_EQ(load(0, BlockId{1}, 0), TransferOutcome::failed) << "no block was stored";
  EXPECT_EQ(store(0, BlockId{1}, 0), TransferOutcome::done);
  EXPECT_EQ(load(1, BlockId{1}, 0), TransferOutcome::failed) << "a block of another group was stored";
  EXPECT_EQ(load(0, BlockId{1}, std::uint64_t{1} << 32U), TransferOutcome::failed) << "a block with another number was stored";
  EXPECT_EQ(store(0, BlockId{1}, std::uint64_t{1} << 32U), TransferOutcome::failed) << "this number was never assigned";
  EXPECT_EQ(transport_->stats().num_absent, 4U);
  EXPECT_EQ(load(0, BlockId{1}, 0), TransferOutcome::done) << "the block stays";
}

// Covers flipped bytes and blocks in a wrong slot.
TEST_F(MemoryTransportTest, TreatsCorruptedBytesAsAMissAndWritesNothing) {
  Random random(4);
  std::uint64_t num_refused = 0;
  for (std::size_t at = 0; at < 9000; at += 1 + random.below(200)) {
    cache_.fill(BlockId{1}, at);
    ASSERT_EQ(store(0, BlockId{1}, 3), TransferOutcome::done);
    transport_->memory_of(3)[at] ^= static_cast<std::byte>(1U << random.below(8));
    cache_.fill(BlockId{2}, 5);
    EXPECT_EQ(load(0, BlockId{2}, 3), TransferOutcome::failed) << at;
    EXPECT_TRUE(cache_.holds(BlockId{2}, 5, 0));
    EXPECT_EQ(transport_->stats().num_refused, ++num_refused);
    EXPECT_EQ(load(0, BlockId{2}, 3), TransferOutcome::failed) << "the slot is empty";
    EXPECT_EQ(transport_->stats().num_refused, num_refused);
  }
  cache_.fill(BlockId{1}, 1);
  cache_.fill(BlockId{2}, 2);
  EXPECT_EQ(move(TransferDirection::store, 0, {BlockId{1}, BlockId{2}}, {0, 1}).outcome, TransferOutcome::done);
  std::ranges::swap_ranges(transport_->memory_of(0), transport_->memory_of(1));
  EXPECT_EQ(move(TransferDirection::load, 0, {BlockId{1}, BlockId{2}}, {0, 1}).bad_blocks.size(), 2U);
}

TEST_F(MemoryTransportTest, ReportsOneCorruptedBlockOfALoad) {
  for (std::uint32_t i = 0; i < 3; ++i) cache_.fill(BlockId{i + 1}, i);
  EXPECT_EQ(move(TransferDirection::store, 0, {BlockId{1}, BlockId{2}, BlockId{3}}, {4, 5, 6}).outcome, TransferOutcome::done);
  transport_->memory_of(5)[100] ^= std::byte{1};
  const TransferCompletion loaded = move(TransferDirection::load, 0, {BlockId{11}, BlockId{12}, BlockId{13}}, {4, 5, 6});
  EXPECT_EQ(loaded.outcome, TransferOutcome::failed);
  ASSERT_EQ(loaded.bad_blocks.size(), 1U);
  EXPECT_EQ(loaded.bad_blocks[0], BlockId{12});
  EXPECT_EQ(loaded.bytes, 18000U);
  EXPECT_TRUE(cache_.holds(BlockId{11}, 0, 0) && cache_.holds(BlockId{13}, 2, 0));
}

// A waiting thread moves the remaining blocks itself and does not wait for earlier transfers.
TEST(MemoryTransportWaitTest, RunsStoresAndLoadsConcurrently) {
  ToyCache cache;
  const auto transport = MemoryTransport::create({.num_places = 39, .block_bytes = 9000}).value();
  std::atomic<int> num_notices = 0;
  transport->attach(cache.pages(), [&] { ++num_notices; });
  for (std::uint64_t round = 0; round < 200; ++round) {
    for (std::uint32_t i = 0; i < 18; ++i) cache.fill(BlockId{1 + i}, round + i);
    const auto start = [&](std::uint64_t id, TransferDirection direction, std::uint32_t first_block, std::uint32_t first_place) {
      std::vector<BlockId> blocks;
      std::vector<std::uint64_t> places;
      for (std::uint32_t i = 0; i < 9; ++i) {
        blocks.push_back(BlockId{first_block + i});
        places.push_back(first_place + i);
      }
      transport->start({.id = TransferId{4 * round + id}, .request = {}, .direction = direction, .blocks = blocks, .places = places});
    };
    start(0, TransferDirection::store, 1, 0);
    start(1, TransferDirection::store, 10, 9);
    transport->wait(TransferId{4 * round});
    start(2, TransferDirection::load, 21, 0);
    transport->wait(TransferId{4 * round + 1});
    start(3, TransferDirection::load, 30, 9);
    transport->wait(TransferId{4 * round + 2});
    for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(cache.holds(BlockId{21 + i}, round + i, 0));
    transport->wait(TransferId{4 * round + 3});
    for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(cache.holds(BlockId{30 + i}, round + 9 + i, 0));
    std::vector<TransferCompletion> over;
    transport->poll(over);
    EXPECT_EQ(over.size(), 4U);
    for (const TransferCompletion& one : over) EXPECT_EQ(one.outcome, TransferOutcome::done);
  }
  transport->detach();
  EXPECT_EQ(num_notices, 800);
}

// Returns how many of the bytes are resident in memory.
std::uint64_t bytes_in_memory(std::span<const std::byte> bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / kPage * kPage;
  std::vector<unsigned char> is_there((bytes.size() + kPage - 1) / kPage);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), is_there.size() * kPage, is_there.data()), 0);
  return kPage * static_cast<std::uint64_t>(std::ranges::count_if(is_there, [](unsigned char page) { return (page & 1U) != 0; }));
}

// Memory that is allocated ahead costs stores none of their CPU share.
TEST(MemoryTransportAheadTest, AllocatesMemoryAheadWithoutChangingStoredBlocks) {
  ToyCache cache;
  constexpr std::uint32_t kPlaces = 1024;
  for (const bool yields_cores : {true, false}) {
    const auto transport = MemoryTransport::create({.num_places = kPlaces, .block_bytes = 9000, .yields_cores = yields_cores}).value();
    const std::span<const std::byte> all(transport->memory_of(0).data(), transport->memory_of(kPlaces - 1).data());
    EXPECT_EQ(bytes_in_memory(all), 0U);
    transport->attach(cache.pages(), [] {});
    for (std::uint32_t place = 0; place < 64; ++place) {  // the last slots are allocated first, and others are allocated last
      const std::uint32_t at = place % 2 == 0 ? kPlaces - 1 - place : place;
      cache.fill(BlockId{1}, place);
      transport->start({.id = TransferId{place},
                        .request = {},
                        .direction = TransferDirection::store,
                        .group = 0,
                        .blocks = {{BlockId{1}}},
                        .places = {{at}}});
      transport->wait(TransferId{place});
    }
    const auto begin = std::chrono::steady_clock::now();
    while (yields_cores && bytes_in_memory(all) < all.size() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(bytes_in_memory(all) >= all.size(), yields_cores);
    for (std::uint32_t place = 0; place < 64; ++place) {
      const std::uint32_t at = place % 2 == 0 ? kPlaces - 1 - place : place;
      transport->start({.id = TransferId{100 + place},
                        .request = {},
                        .direction = TransferDirection::load,
                        .group = 0,
                        .blocks = {{BlockId{2}}},
                        .places = {{at}}});
      transport->wait(TransferId{100 + place});
      EXPECT_TRUE(cache.holds(BlockId{2}, place, 0)) << place;
    }
  }
}

// The memory that is left is looked at whenever 64 MiB begin, from the end. Huge pages may reach beyond the touched slots.
TEST(MemoryTransportAheadTest, AllocatesMemoryAheadOnlyWhileOneGiBAnd64MiBAreLeft) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U, kHugePage = 2 * kMiB;
  constexpr std::uint32_t kPlaces = 80;
  ToyCache cache;
  for (const bool is_enough : {false, true}) {
    std::atomic<int> num_looks = 0;
    const auto transport = MemoryTransport::create({.num_places = kPlaces,
                                                    .block_bytes = kMiB,
                                                    .yields_cores = true,
                                                    .usable_memory =
                                                        [&] {
                                                          ++num_looks;
                                                          return (std::uint64_t{1024} + 64) * kMiB - (is_enough ? 0 : 1);
                                                        }})
                               .value();
    const std::span<const std::byte> all(transport->memory_of(0).data(), kPlaces * kMiB);
    transport->attach(cache.pages(), [] {});
    EXPECT_TRUE(comes_true([&] { return is_enough ? bytes_in_memory(all) >= all.size() : num_looks > 0; }));
    // The thread that touches slots also stores blocks, so it has looked before it stores this one.
    const std::vector<std::uint64_t> places{kPlaces - 1};
    transport->start({.id = TransferId{1},
                      .request = {},
                      .direction = TransferDirection::store,
                      .group = 0,
                      .blocks = {{BlockId{1}}},
                      .places = places});
    std::vector<TransferCompletion> over;
    EXPECT_TRUE(comes_true([&] {
      transport->poll(over);
      return !over.empty();
    }));
    EXPECT_EQ(num_looks, 1) << is_enough;
    if (!is_enough) EXPECT_GE(bytes_in_memory(all), 16 * kMiB);
    if (!is_enough) EXPECT_LE(bytes_in_memory(all), 16 * kMiB + kHugePage);
    transport->detach();
  }
}

TEST(MemoryTransportDeathTest, NeedsRoomForABlockOfEachGroup) {
  ToyCache cache;
  for (int order = 0; order < 2; ++order) {
    const auto transport = MemoryTransport::create({.num_places = 8, .block_bytes = 8999}).value();
    EXPECT_DEATH(transport->attach(cache.pages(), [] {}), "large enough for a block of each group");
    std::swap(cache.layout.groups[0], cache.layout.groups[1]);
  }
}

TEST(MemoryTransportOptionsTest, SlotsShareNoCacheLine) {
  for (const auto& [block, distance] : std::vector<std::pair<std::uint64_t, std::ptrdiff_t>>{
           {1, 64}, {63, 64}, {64, 64}, {65, 128}, {128, 128}, {129, 192}, {9000, 9024}}) {
    const auto transport = MemoryTransport::create({.num_places = 3, .block_bytes = block}).value();
    EXPECT_EQ(transport->memory_of(1).data() - transport->memory_of(0).data(), distance) << block;
    EXPECT_EQ(transport->memory_of(2).data() - transport->memory_of(1).data(), distance) << block;
    EXPECT_EQ(transport->memory_of(2).size(), block);
    EXPECT_EQ(transport->num_places(), 3U);
    EXPECT_EQ(transport->block_bytes(), block);
  }
}

TEST(MemoryTransportOptionsTest, RefusesInvalidSizes) {
  EXPECT_EQ(MemoryTransport::create({.num_places = 0, .block_bytes = 9000}).error().field, "num_places");
  EXPECT_EQ(MemoryTransport::create({.num_places = 1, .block_bytes = 0}).error().field, "block_bytes");
  EXPECT_EQ(MemoryTransport::create({.num_places = 1, .block_bytes = (std::uint64_t{1} << 30U) + 1}).error().field, "block_bytes");
  EXPECT_EQ(MemoryTransport::create({.num_places = UINT32_MAX, .block_bytes = std::uint64_t{1} << 30U}).error().field, "num_places");
}

}  // namespace
}  // namespace quire::test
