// What a worker may rely on when a disk moves its blocks, over each way to move them.
#include "runtime/tier/disk_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "runtime/tier/memory_files.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Two groups: blocks of the first have pages in both tensors, those of the second in the first one only.
KvLayout two_groups() {
  KvLayout layout{.num_blocks = 40, .dtype = KvDtype::bf16, .groups = {}, .layers = {}, .page_bytes = {6000, 3000}};
  for (const std::vector<std::uint32_t>& layers : {std::vector<std::uint32_t>{0, 1}, std::vector<std::uint32_t>{2}})
    layout.groups.push_back({.spec = {}, .block_size = 16, .kernel_block_size = 16, .layers = layers});
  return layout;
}

struct Cache {
  KvLayout layout = two_groups();
  std::vector<std::vector<std::byte>> tensors;
  Cache() {
    for (const std::uint64_t page : layout.page_bytes) tensors.emplace_back(page * layout.num_blocks);
  }
  KvPages pages() {
    KvPages all{.layout = &layout, .tensors = {}};
    for (std::vector<std::byte>& tensor : tensors) all.tensors.push_back(tensor.data());
    return all;
  }
  void fill(BlockId block, std::uint64_t number) {
    for (std::uint32_t tensor = 0; tensor < 2; ++tensor)
      std::ranges::copy(tier_block(number * 2 + tensor, layout.page_bytes[tensor]), pages().page(tensor, block).begin());
  }
  bool holds(BlockId block, std::uint64_t number, std::uint32_t group) {
    bool is_equal = true;
    for (std::uint32_t tensor = 0; tensor < layout.groups[group].layers.size(); ++tensor)
      is_equal = is_equal && std::ranges::equal(pages().page(tensor, block), tier_block(number * 2 + tensor, layout.page_bytes[tensor]));
    return is_equal;
  }
};

enum class DiskWay : std::uint8_t { io_uring, threads, memory };

class DiskTransportTest : public testing::TestWithParam<DiskWay> {
 protected:
  void SetUp() override {
    std::unique_ptr<TierFiles> files = std::make_unique<MemoryFiles>(disk_);
    if (GetParam() != DiskWay::memory)
      files = tier_folder(folder_.path(), GetParam() == DiskWay::threads ? TierIo::threads : TierIo::io_uring);
    auto store = DiskStore::open(std::move(files), {.budget_bytes = 1 << 20, .block_bytes = 9000, .fingerprint = tier_fingerprint()});
    if (!store && store.error().field == "io") GTEST_SKIP() << store.error().message;
    store_ = *std::move(store);
    begin();
  }
  void begin(double patience_seconds = 60.0) {
    transport_ = std::make_unique<DiskTransport>(store_, patience_seconds);
    transport_->attach(cache_.pages(), [this] { ++num_notices_; });
  }
  void start(std::uint64_t id, TransferDirection direction, std::uint32_t group, std::vector<BlockId> blocks,
             std::vector<std::uint64_t> places) {
    transport_->start({.id = TransferId{id},
                       .request = {},
                       .direction = direction,
                       .need = TransferNeed::step,
                       .group = group,
                       .blocks = blocks,
                       .places = places});
  }
  // Waits for it, and for nothing else.
  TransferCompletion end_of(std::uint64_t id) {
    transport_->wait(TransferId{id});
    std::vector<TransferCompletion> over;
    transport_->poll(over);
    EXPECT_EQ(over.size(), 1U);
    EXPECT_EQ(over.at(0).transfer, TransferId{id});
    return over.at(0);
  }

  TempFolder folder_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  Cache cache_;
  std::atomic<int> num_notices_ = 0;
  std::shared_ptr<DiskStore> store_;
  std::unique_ptr<DiskTransport> transport_;
};
std::string disk_way_name(const testing::TestParamInfo<DiskWay>& tested) {
  if (tested.param == DiskWay::memory) return "memory";
  return tested.param == DiskWay::threads ? "threads" : "io_uring";
}
INSTANTIATE_TEST_SUITE_P(Ways, DiskTransportTest, testing::Values(DiskWay::io_uring, DiskWay::threads, DiskWay::memory), disk_way_name);

TEST_P(DiskTransportTest, BlocksComeBackInOtherBlocks) {
  for (std::uint32_t group = 0; group < 2; ++group) {
    std::vector<BlockId> from, to;
    std::vector<std::uint64_t> places;
    for (std::uint32_t i = 0; i < 10; ++i) {
      from.push_back(BlockId{1 + i});
      to.push_back(BlockId{30 - i});
      places.push_back(transport_->assign(2 * i, tier_name(i)));
      cache_.fill(from.back(), i);
    }
    start(2 * group, TransferDirection::store, group, from, places);
    const TransferCompletion stored = end_of(2 * group);
    EXPECT_EQ(stored.outcome, TransferOutcome::done);
    EXPECT_EQ(stored.bytes, 10 * (group == 0 ? 9000U : 6000U));
    for (const BlockId block : from) cache_.fill(block, 99);
    for (const BlockId block : to) cache_.fill(block, 98);
    start(2 * group + 1, TransferDirection::load, group, to, places);
    const TransferCompletion loaded = end_of(2 * group + 1);
    EXPECT_EQ(loaded.outcome, TransferOutcome::done);
    EXPECT_EQ(loaded.bytes, stored.bytes);
    EXPECT_GT(loaded.seconds, 0.0);
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_TRUE(cache_.holds(to[i], i, group));
    for (const BlockId block : from) EXPECT_TRUE(cache_.holds(block, 99, group));
  }
  transport_->detach();
  EXPECT_EQ(num_notices_, 4);
}

TEST_P(DiskTransportTest, ALoadNamesTheBlocksThatDidNotCome) {
  const std::uint64_t good = transport_->assign(0, tier_name(0)), stale = transport_->assign(1, tier_name(1));
  for (std::uint32_t i = 0; i < 2; ++i) cache_.fill(BlockId{i + 1}, i);
  start(1, TransferDirection::store, 0, {BlockId{1}, BlockId{2}}, {good, stale});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  const std::uint64_t unwritten = transport_->assign(1, tier_name(5));
  start(2, TransferDirection::load, 0, {BlockId{11}, BlockId{12}, BlockId{13}}, {good, stale, unwritten});
  const TransferCompletion loaded = end_of(2);
  EXPECT_EQ(loaded.outcome, TransferOutcome::failed);
  EXPECT_EQ(std::vector(loaded.bad_blocks.begin(), loaded.bad_blocks.end()), (std::vector{BlockId{12}, BlockId{13}}))
      << "the place has another name now, and what it is to hold was never stored";
  EXPECT_EQ(loaded.bytes, 9000U);
  EXPECT_TRUE(cache_.holds(BlockId{11}, 0, 0));
  transport_->detach();
}

TEST_P(DiskTransportTest, AnotherTransportFindsWhatOneStored) {
  cache_.fill(BlockId{1}, 4);
  start(1, TransferDirection::store, 0, {BlockId{1}}, {transport_->assign(3, tier_name(4))});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  transport_->detach();
  begin();
  start(1, TransferDirection::load, 0, {BlockId{2}}, {transport_->assign(3, tier_name(4))});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  EXPECT_TRUE(cache_.holds(BlockId{2}, 4, 0));
  transport_->detach();
}

// Many transfers at a time; each ends once, and each load holds what was stored under its name last.
TEST_P(DiskTransportTest, ManyTransfersAtATimeEachEndOnce) {
  Random random(2);
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> stored;  // by place: its number, and what it holds
  for (std::uint64_t round = 0, next = 1; round < 30; ++round) {
    std::set<std::uint32_t> places;
    std::map<std::uint64_t, std::pair<BlockId, std::uint64_t>> loads;
    std::map<TransferId, int> ends;
    for (std::uint32_t block = 1; block < 40; ++block) {
      const auto place = static_cast<std::uint32_t>(random.below(store_->num_places()));
      if (!places.insert(place).second) continue;
      ends[TransferId{next}] = 0;
      if (stored.contains(place) && random.chance(0.6)) {
        loads[next] = {BlockId{block}, stored[place].second};
        start(next++, TransferDirection::load, 0, {BlockId{block}}, {stored[place].first});
      } else {
        const std::uint64_t number = random.below(1000);
        cache_.fill(BlockId{block}, number);
        stored[place] = {transport_->assign(place, tier_name(number)), number};
        start(next++, TransferDirection::store, 0, {BlockId{block}}, {stored[place].first});
      }
    }
    for (const auto& [id, count] : ends) transport_->wait(id);
    std::vector<TransferCompletion> over;
    transport_->poll(over);
    for (const TransferCompletion& one : over) {
      EXPECT_EQ(one.outcome, TransferOutcome::done);
      ++ends.at(one.transfer);
    }
    for (const auto& [id, count] : ends) EXPECT_EQ(count, 1);
    for (const auto& [id, load] : loads) EXPECT_TRUE(cache_.holds(load.first, load.second, 0));
  }
  transport_->detach();
}

// A disk whose ends do not come, until it is told to go on.
class HungQueue final : public BlockQueue {
 public:
  HungQueue(std::unique_ptr<BlockQueue> queue, const std::atomic<bool>& hangs) : queue_(std::move(queue)), hangs_(hangs) {}
  void submit(const BlockIo& io) override { held_.push_back(io); }
  void collect(bool wait, std::vector<BlockIoOver>& over) override {
    if (hangs_) return queue_->collect(wait, over);
    for (const BlockIo& io : held_) queue_->submit(io);
    held_.clear();
    queue_->collect(wait, over);
  }
  void wake() override { queue_->wake(); }

 private:
  std::unique_ptr<BlockQueue> queue_;
  const std::atomic<bool>& hangs_;
  std::vector<BlockIo> held_;
};

class HungFiles final : public TierFiles {
 public:
  HungFiles(std::shared_ptr<MemoryDisk> disk, const std::atomic<bool>& hangs) : files_(std::move(disk)), hangs_(hangs) {}
  Result<std::uint64_t> disk_bytes() override { return files_.disk_bytes(); }
  Result<std::uint64_t> table_bytes() override { return files_.table_bytes(); }
  Result<void> resize(TierFile file, std::uint64_t bytes) override { return files_.resize(file, bytes); }
  Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) override { return files_.read_table(offset, bytes); }
  Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) override { return files_.write_table(offset, bytes); }
  Result<void> sync_table() override { return files_.sync_table(); }
  std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) override {
    return std::make_unique<HungQueue>(files_.open_queue(depth), hangs_);
  }

 private:
  MemoryFiles files_;
  const std::atomic<bool>& hangs_;
};

// Wakes the store.
TierJob nothing() {
  return {.verb = TierJob::Verb::load, .place = 1, .name = {}, .bytes = 1, .copy = {}, .over = [](TierOutcome) {}};
}

// One transfer, from its beginning to its end.
TransferCompletion run(DiskTransport& transport, std::uint64_t id, TransferDirection direction, const std::vector<BlockId>& blocks,
                       const std::vector<std::uint64_t>& places) {
  transport.start({.id = TransferId{id}, .request = {}, .direction = direction, .group = 0, .blocks = blocks, .places = places});
  transport.wait(TransferId{id});
  std::vector<TransferCompletion> over;
  transport.poll(over);
  return over.at(0);
}

TEST(DiskTransportHangTest, WhatDoesNotEndFailsAndTouchesNothingLater) {
  std::atomic<bool> hangs = false;
  std::atomic<int> num_notices = 0;
  Cache cache;
  {
    const std::shared_ptr<DiskStore> store =
        DiskStore::open(std::make_unique<HungFiles>(std::make_shared<MemoryDisk>(), hangs),
                        {.budget_bytes = 1 << 20, .block_bytes = 9000, .fingerprint = tier_fingerprint()})
            .value();
    DiskTransport transport(store, 0.2);
    transport.attach(cache.pages(), [&] { ++num_notices; });
    const std::vector<std::uint64_t> places{transport.assign(0, tier_name(1))};
    const auto outcome = [&](std::uint64_t id, TransferDirection direction, BlockId block) {
      return run(transport, id, direction, std::vector{block}, places).outcome;
    };
    cache.fill(BlockId{1}, 1);
    hangs = true;
    EXPECT_EQ(outcome(1, TransferDirection::store, BlockId{1}), TransferOutcome::failed);
    hangs = false;
    while (store->stats().num_stored == 0) {
      store->submit(nothing());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // It came later than anybody waited, and is good. (A slow machine may take its time again.)
    std::uint64_t id = 2;
    while (outcome(id++, TransferDirection::load, BlockId{2}) != TransferOutcome::done) {
    }
    EXPECT_TRUE(cache.holds(BlockId{2}, 1, 0));
    hangs = true;
    cache.fill(BlockId{3}, 3);
    EXPECT_EQ(outcome(id, TransferDirection::load, BlockId{3}), TransferOutcome::failed);
    transport.detach();  // a notice may come after the end that it tells of
    EXPECT_EQ(num_notices, static_cast<int>(id));
    hangs = false;
  }
  EXPECT_TRUE(cache.holds(BlockId{3}, 3, 0)) << "the load that was given up has come since";
}

// A step that is to write to a block waits for no disk: what was not stored by then is not.
TEST(DiskTransportHangTest, AStoreThatAStepWaitsForIsGivenUp) {
  std::atomic<bool> hangs = true;
  Cache cache;
  const std::shared_ptr<DiskStore> store =
      DiskStore::open(std::make_unique<HungFiles>(std::make_shared<MemoryDisk>(), hangs),
                      {.budget_bytes = 1 << 20, .block_bytes = 9000, .fingerprint = tier_fingerprint(), .depth = 1})
          .value();
  DiskTransport transport(store, 600.0, true);
  transport.attach(cache.pages(), [] {});
  const std::vector<BlockId> blocks{BlockId{1}, BlockId{2}};
  const std::vector<std::uint64_t> places{transport.assign(0, tier_name(1)), transport.assign(1, tier_name(2))};
  for (const BlockId block : blocks) cache.fill(block, block.value);
  const auto moved = [&](std::uint64_t id, TransferDirection direction) { return run(transport, id, direction, blocks, places); };
  EXPECT_EQ(moved(1, TransferDirection::store).outcome, TransferOutcome::failed);
  for (const BlockId block : blocks) cache.fill(block, 99);
  hangs = false;
  while (store->stats().num_given_up == 0) {
    store->submit(nothing());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The first may have been on its way with what it held then; the second has not been copied, neither then nor now.
  const TransferCompletion loaded = moved(2, TransferDirection::load);
  EXPECT_EQ(loaded.outcome, TransferOutcome::failed);
  EXPECT_TRUE(cache.holds(BlockId{1}, 1, 0) || cache.holds(BlockId{1}, 99, 0));
  EXPECT_TRUE(cache.holds(BlockId{2}, 99, 0));
  transport.detach();
}

}  // namespace
}  // namespace quire::test
