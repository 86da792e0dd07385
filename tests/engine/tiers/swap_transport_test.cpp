// Tests transfers between a KV cache and slots in memory and in files: which slot is where, and how the two parts of a transfer end.
#include "engine/tiers/swap_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "runtime/tier/flaky_files.h"
#include "runtime/tier/toy_cache.h"

namespace quire {
namespace {

constexpr std::uint64_t kSwappedBytes = 9000, kSmallSwappedBytes = 6000;  // of the blocks of the two groups

// Slots 0 to num_near - 1 are in memory, and the others are in files.
class SwapRig {
 public:
  explicit SwapRig(std::uint32_t num_near) {
    if (num_near > 0) memory = MemoryTransport::create({.num_places = num_near, .block_bytes = kSwappedBytes}).value();
    store = DiskStore::open(std::make_unique<test::FlakyFiles>(std::make_shared<test::MemoryDisk>(), flaws),
                            {.budget_bytes = 1 << 20, .block_bytes = kSwappedBytes, .fingerprint = {}})
                .value();
    swap = std::make_unique<SwapTransport>(memory, store, 60.0);
    swap->attach(cache.pages(), [this] { ++num_notices; });
    for (std::uint32_t i = 0; i < 40; ++i) cache.fill(BlockId{i}, i);
  }
  TransferId begin(TransferDirection direction, std::uint32_t first_block, const std::vector<std::uint64_t>& slots,
                   std::uint32_t group = 0) {
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < slots.size(); ++i) blocks.push_back(BlockId{first_block + i});
    const TransferId id{++last_id};
    swap->start({.id = id, .request = {}, .direction = direction, .group = group, .tier = kSwapTier, .blocks = blocks, .places = slots});
    return id;
  }
  // Views in the completion are valid until the next call.
  TransferCompletion end_of(TransferId id) {
    swap->wait(id);
    std::vector<TransferCompletion> over;
    swap->poll(over);
    EXPECT_EQ(over.size(), 1U);
    if (over.empty()) return {};
    EXPECT_EQ(over[0].transfer, id);
    return over[0];
  }
  TransferCompletion run(TransferDirection direction, std::uint32_t first_block, const std::vector<std::uint64_t>& slots,
                         std::uint32_t group = 0) {
    return end_of(begin(direction, first_block, slots, group));
  }

  std::atomic<std::uint32_t> num_notices = 0;
  test::ToyCache cache;
  const std::shared_ptr<test::Flaws> flaws = std::make_shared<test::Flaws>();
  std::shared_ptr<MemoryTransport> memory;
  std::shared_ptr<DiskStore> store;
  std::unique_ptr<SwapTransport> swap;
  std::uint64_t last_id = 0;
};

std::vector<BlockId> bad_blocks_of(const TransferCompletion& completion) {
  return {completion.bad_blocks.begin(), completion.bad_blocks.end()};
}

TEST(SwapTransport, SplitsTransfersBetweenMemoryAndFiles) {
  struct Case {
    std::uint32_t num_near, group;
    std::vector<std::uint64_t> slots;
    std::uint32_t num_in_memory;
  };
  for (const Case& one :
       {Case{3, 0, {1, 2, 3, 4, 5}, 2}, {3, 1, {5, 2, 3, 0}, 2}, {3, 0, {0, 2}, 2}, {3, 0, {3, 9}, 0}, {0, 0, {0, 1, 7}, 0}}) {
    SCOPED_TRACE(one.slots.size() * 100 + one.num_near * 10 + one.group);
    SwapRig rig(one.num_near);
    const std::uint64_t bytes = one.slots.size() * (one.group == 0 ? kSwappedBytes : kSmallSwappedBytes);
    const TransferCompletion out = rig.run(TransferDirection::store, 0, one.slots, one.group);
    EXPECT_EQ(out.outcome, TransferOutcome::done);
    EXPECT_EQ(out.bytes, bytes);
    EXPECT_GT(out.seconds, 0.0);
    EXPECT_EQ(rig.store->stats().num_stored, one.slots.size() - one.num_in_memory);
    if (rig.memory != nullptr) EXPECT_EQ(rig.memory->stats().num_stored, one.num_in_memory);
    const TransferCompletion in = rig.run(TransferDirection::load, 20, one.slots, one.group);
    EXPECT_EQ(in.outcome, TransferOutcome::done);
    EXPECT_EQ(in.bytes, bytes);
    EXPECT_TRUE(in.bad_blocks.empty());
    for (std::uint32_t i = 0; i < one.slots.size(); ++i) EXPECT_TRUE(rig.cache.holds(BlockId{20 + i}, i, one.group)) << i;
    EXPECT_EQ(rig.store->stats().num_loaded, one.slots.size() - one.num_in_memory);
    const std::uint32_t num_parts = (one.num_in_memory > 0 ? 1 : 0) + (one.num_in_memory < one.slots.size() ? 1 : 0);
    EXPECT_TRUE(test::comes_true([&] { return rig.num_notices == 2 * num_parts; })) << "each part notifies the engine";
  }
}

TEST(SwapTransport, LoadsTheBlockThatWasStoredLast) {
  SwapRig rig(1);
  EXPECT_EQ(rig.run(TransferDirection::store, 0, {0, 1, 2}).outcome, TransferOutcome::done);
  EXPECT_EQ(rig.run(TransferDirection::store, 10, {2, 0}).outcome, TransferOutcome::done);
  EXPECT_EQ(rig.run(TransferDirection::load, 20, {0, 1, 2}).outcome, TransferOutcome::done);
  EXPECT_TRUE(rig.cache.holds(BlockId{20}, 11, 0));
  EXPECT_TRUE(rig.cache.holds(BlockId{21}, 1, 0));
  EXPECT_TRUE(rig.cache.holds(BlockId{22}, 10, 0));
}

TEST(SwapTransport, ListsTheBadBlocksOfBothParts) {
  SwapRig rig(2);
  ASSERT_EQ(rig.run(TransferDirection::store, 0, {0, 1, 2, 3}).outcome, TransferOutcome::done);
  rig.memory->memory_of(1)[5] ^= std::byte{1};
  TransferCompletion in = rig.run(TransferDirection::load, 20, {0, 1, 2, 3});
  EXPECT_EQ(in.outcome, TransferOutcome::failed);
  EXPECT_EQ(in.bytes, 3 * kSwappedBytes);
  EXPECT_EQ(bad_blocks_of(in), std::vector{BlockId{21}}) << "only the part in memory has failed";
  EXPECT_TRUE(rig.cache.holds(BlockId{20}, 0, 0) && rig.cache.holds(BlockId{22}, 2, 0) && rig.cache.holds(BlockId{23}, 3, 0));
  rig.flaws->fails_reads = true;
  in = rig.run(TransferDirection::load, 30, {0, 2, 3});
  EXPECT_EQ(in.outcome, TransferOutcome::failed);
  EXPECT_EQ(in.bytes, kSwappedBytes);
  EXPECT_EQ(bad_blocks_of(in), (std::vector{BlockId{31}, BlockId{32}})) << "only the part in files has failed";
  in = rig.run(TransferDirection::load, 30, {1, 0, 2});
  EXPECT_EQ(bad_blocks_of(in), (std::vector{BlockId{30}, BlockId{32}})) << "both parts have failed";
}

TEST(SwapTransport, LoadsNothingFromSlotsThatWereNeverStoredTo) {
  SwapRig rig(1);
  const TransferCompletion in = rig.run(TransferDirection::load, 20, {0, 1, 2});
  EXPECT_EQ(in.outcome, TransferOutcome::failed);
  EXPECT_EQ(in.bytes, 0U);
  EXPECT_EQ(in.bad_blocks.size(), 3U);
}

TEST(SwapTransport, ReportsAFailedStoreWithoutAList) {
  SwapRig rig(1);
  rig.flaws->fails_writes = true;
  const TransferCompletion out = rig.run(TransferDirection::store, 0, {0, 1});
  EXPECT_EQ(out.outcome, TransferOutcome::failed);
  EXPECT_EQ(out.bytes, kSwappedBytes) << "the block in memory";
  EXPECT_TRUE(out.bad_blocks.empty());
}

TEST(SwapTransport, EndsATransferWhenItsSlowerPartEnds) {
  using Clock = std::chrono::steady_clock;
  SwapRig rig(1);
  rig.flaws->hangs = true;
  const auto begin = Clock::now();
  const TransferId id = rig.begin(TransferDirection::store, 0, {0, 1});
  const auto started = Clock::now();
  ASSERT_TRUE(test::comes_true([&] { return rig.num_notices == 1; })) << "the part in memory is over";
  std::vector<TransferCompletion> over;
  rig.swap->poll(over);
  EXPECT_TRUE(over.empty());
  // The part in files takes longer than the part in memory can have taken.
  const auto longest_in_memory = Clock::now() - begin;
  while (Clock::now() - started < 2 * longest_in_memory) std::this_thread::yield();
  const std::chrono::duration<double> in_files = Clock::now() - started;
  rig.flaws->hangs = false;
  const TransferCompletion out = rig.end_of(id);
  EXPECT_EQ(out.outcome, TransferOutcome::done);
  EXPECT_EQ(out.bytes, 2 * kSwappedBytes);
  EXPECT_GE(out.seconds, in_files.count());
  over.clear();
  rig.swap->poll(over);
  EXPECT_TRUE(over.empty()) << "an end is reported once";
}

TEST(SwapTransport, DetachEndsOpenTransfers) {
  SwapRig rig(1);
  rig.flaws->hangs = true;
  const TransferId id = rig.begin(TransferDirection::store, 0, {1});
  rig.swap->detach();
  std::vector<TransferCompletion> over;
  rig.swap->poll(over);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].transfer, id);
  EXPECT_EQ(over[0].outcome, TransferOutcome::failed);
  rig.memory->attach(rig.cache.pages(), [] {});  // stops the program if the memory is still attached
  rig.memory->detach();
  rig.flaws->hangs = false;
}

}  // namespace
}  // namespace quire
