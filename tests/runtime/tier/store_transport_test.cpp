// Tests a disk's transport in addition to the contract (transport_contract.h): no thread waits for a disk that does not answer.
#include "runtime/tier/store_transport.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/tier/flaky_files.h"
#include "runtime/tier/tier_support.h"
#include "runtime/tier/toy_cache.h"

namespace quire::test {
namespace {

// Runs one transfer from its beginning to its end.
TransferCompletion run(StoreTransport& transport, std::uint64_t id, TransferDirection direction, const std::vector<BlockId>& blocks,
                       const std::vector<std::uint64_t>& places) {
  transport.start({.id = TransferId{id}, .request = {}, .direction = direction, .group = 0, .blocks = blocks, .places = places});
  transport.wait(TransferId{id});
  std::vector<TransferCompletion> over;
  transport.poll(over);
  return over.at(0);
}

TEST(StoreTransportHangTest, FailsTransfersThatHangAndTouchesNothingLater) {
  const auto flaws = std::make_shared<Flaws>();
  std::atomic<int> num_notices = 0;
  ToyCache cache;
  {
    const std::shared_ptr<DiskStore> store =
        DiskStore::open(std::make_unique<FlakyFiles>(std::make_shared<MemoryDisk>(), flaws),
                        {.budget_bytes = 1 << 20, .block_bytes = 9000, .fingerprint = tier_fingerprint()})
            .value();
    StoreTransport transport(store, 0.2);
    transport.attach(cache.pages(), [&] { ++num_notices; });
    const std::vector<std::uint64_t> places{transport.assign(0, tier_name(1))};
    const auto outcome = [&](std::uint64_t id, TransferDirection direction, BlockId block) {
      return run(transport, id, direction, std::vector{block}, places).outcome;
    };
    cache.fill(BlockId{1}, 1);
    flaws->hangs = true;
    EXPECT_EQ(outcome(1, TransferDirection::store, BlockId{1}), TransferOutcome::failed);
    flaws->hangs = false;
    while (store->stats().num_stored == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // The late store has ended and is good. (A slow machine may need several tries.)
    std::uint64_t id = 2;
    while (outcome(id++, TransferDirection::load, BlockId{2}) != TransferOutcome::done) {
    }
    EXPECT_TRUE(cache.holds(BlockId{2}, 1, 0));
    flaws->hangs = true;
    cache.fill(BlockId{3}, 3);
    EXPECT_EQ(outcome(id, TransferDirection::load, BlockId{3}), TransferOutcome::failed);
    transport.detach();  // a notice may arrive after the end that it reports
    EXPECT_EQ(num_notices, static_cast<int>(id));
    flaws->hangs = false;
  }
  EXPECT_TRUE(cache.holds(BlockId{3}, 3, 0)) << "the abandoned load has ended since then and wrote nothing";
}

// A step that writes to a block waits for no disk. Blocks that are not stored by then are dropped.
TEST(StoreTransportHangTest, CancelsAStoreThatAStepWaitsFor) {
  const auto flaws = std::make_shared<Flaws>();
  flaws->hangs = true;
  ToyCache cache;
  const std::shared_ptr<DiskStore> store =
      DiskStore::open(std::make_unique<FlakyFiles>(std::make_shared<MemoryDisk>(), flaws),
                      {.budget_bytes = 1 << 20, .block_bytes = 9000, .fingerprint = tier_fingerprint(), .depth = 1})
          .value();
  StoreTransport transport(store, 600.0, true);
  transport.attach(cache.pages(), [] {});
  const std::vector<BlockId> blocks{BlockId{1}, BlockId{2}, BlockId{3}};
  std::vector<std::uint64_t> places;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) places.push_back(transport.assign(i, tier_name(blocks[i].value)));
  for (const BlockId block : blocks) cache.fill(block, block.value);
  const auto moved = [&](std::uint64_t id, TransferDirection direction) { return run(transport, id, direction, blocks, places); };
  EXPECT_EQ(moved(1, TransferDirection::store).outcome, TransferOutcome::failed);
  for (const BlockId block : blocks) cache.fill(block, 99);
  flaws->hangs = false;
  while (store->stats().num_cancelled == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The first two blocks may have been copied before or after the change. The third was never copied.
  const TransferCompletion loaded = moved(2, TransferDirection::load);
  EXPECT_EQ(loaded.outcome, TransferOutcome::failed);
  EXPECT_TRUE(cache.holds(BlockId{1}, 1, 0) || cache.holds(BlockId{1}, 99, 0));
  EXPECT_TRUE(cache.holds(BlockId{2}, 2, 0) || cache.holds(BlockId{2}, 99, 0));
  EXPECT_TRUE(cache.holds(BlockId{3}, 99, 0));
  transport.detach();
}

}  // namespace
}  // namespace quire::test
