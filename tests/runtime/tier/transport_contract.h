#pragma once
// TransportContractTest checks the guarantees of all transports. The tests of a module instantiate it with their transports.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "base/random.h"
#include "runtime/tier/tier_support.h"
#include "runtime/tier/toy_cache.h"

namespace quire::test {

// A transport with at least 80 slots for blocks of up to 9,000 bytes, and its storage.
class TestedTransport {
 public:
  virtual ~TestedTransport() = default;
  // Replaces the transport by a detached one. Stored blocks stay.
  virtual void renew() = 0;
  virtual Transport& transport() = 0;
  virtual std::uint64_t assign(std::uint32_t place, const OffloadKey& name) = 0;
  virtual std::uint32_t num_places() = 0;
};

struct TransportWay {
  std::string name;
  // Returns null if this machine does not support it.
  std::function<std::unique_ptr<TestedTransport>(const TempFolder&)> make;
};

class TransportContractTest : public testing::TestWithParam<TransportWay> {
 protected:
  void SetUp() override {
    tested_ = GetParam().make(folder_);
    if (tested_ == nullptr) GTEST_SKIP() << GetParam().name << " is not supported on this machine";
    begin();
  }
  void begin() {
    transport_ = &tested_->transport();
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
  // Waits for this transfer only.
  TransferCompletion end_of(std::uint64_t id) {
    transport_->wait(TransferId{id});
    std::vector<TransferCompletion> over;
    transport_->poll(over);
    EXPECT_EQ(over.size(), 1U);
    EXPECT_EQ(over.at(0).transfer, TransferId{id});
    return over.at(0);
  }

  TempFolder folder_;
  ToyCache cache_;
  std::atomic<int> num_notices_ = 0;
  std::unique_ptr<TestedTransport> tested_;
  Transport* transport_ = nullptr;
};

inline std::string transport_way_name(const testing::TestParamInfo<TransportWay>& tested) {
  return tested.param.name;
}

TEST_P(TransportContractTest, LoadsStoredBlocksIntoOtherBlocks) {
  for (std::uint32_t group = 0; group < 2; ++group) {
    std::vector<BlockId> from, to;
    std::vector<std::uint64_t> places;
    for (std::uint32_t i = 0; i < 10; ++i) {
      from.push_back(BlockId{1 + i});
      to.push_back(BlockId{30 - i});
      places.push_back(tested_->assign(2 * i, tier_name(i)));
      cache_.fill(from.back(), i);
    }
    start(2 * group, TransferDirection::store, group, from, places);
    const TransferCompletion stored = end_of(2 * group);
    EXPECT_EQ(stored.outcome, TransferOutcome::done);
    EXPECT_EQ(stored.bytes, 10 * (group == 0 ? 9000U : 6000U));
    for (const BlockId block : from) cache_.fill(block, 99);
    for (const BlockId block : to) cache_.fill(block, 98);
    const auto begin = std::chrono::steady_clock::now();
    start(2 * group + 1, TransferDirection::load, group, to, places);
    const TransferCompletion loaded = end_of(2 * group + 1);
    EXPECT_EQ(loaded.outcome, TransferOutcome::done);
    EXPECT_EQ(loaded.bytes, stored.bytes);
    EXPECT_GT(loaded.seconds, 0.0);
    EXPECT_LE(loaded.seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_TRUE(cache_.holds(to[i], i, group));
    for (const BlockId block : from) EXPECT_TRUE(cache_.holds(block, 99, group));
  }
  transport_->detach();
  EXPECT_EQ(num_notices_, 4);
}

TEST_P(TransportContractTest, ReportsTheBlocksThatALoadDidNotFind) {
  const std::uint64_t good = tested_->assign(0, tier_name(0)), stale = tested_->assign(1, tier_name(1));
  for (std::uint32_t i = 0; i < 2; ++i) cache_.fill(BlockId{i + 1}, i);
  start(1, TransferDirection::store, 0, {BlockId{1}, BlockId{2}}, {good, stale});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  const std::uint64_t unwritten = tested_->assign(1, tier_name(5));
  start(2, TransferDirection::load, 0, {BlockId{11}, BlockId{12}, BlockId{13}}, {good, stale, unwritten});
  const TransferCompletion loaded = end_of(2);
  EXPECT_EQ(loaded.outcome, TransferOutcome::failed);
  EXPECT_EQ(std::vector(loaded.bad_blocks.begin(), loaded.bad_blocks.end()), (std::vector{BlockId{12}, BlockId{13}}))
      << "the slot has another key now, and its block was never stored";
  EXPECT_EQ(loaded.bytes, 9000U);
  EXPECT_TRUE(cache_.holds(BlockId{11}, 0, 0));
  transport_->detach();
}

TEST_P(TransportContractTest, FindsBlocksThatAnotherTransportStored) {
  cache_.fill(BlockId{1}, 4);
  start(1, TransferDirection::store, 0, {BlockId{1}}, {tested_->assign(3, tier_name(4))});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  transport_->detach();
  tested_->renew();
  begin();
  start(1, TransferDirection::load, 0, {BlockId{2}}, {tested_->assign(3, tier_name(4))});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  EXPECT_TRUE(cache_.holds(BlockId{2}, 4, 0));
  transport_->detach();
}

// Many transfers run at a time. Each ends once, and each load returns the newest block of its key.
TEST_P(TransportContractTest, EndsEachOfManyConcurrentTransfersOnce) {
  Random random(2);
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> stored;  // by slot: its number and its content
  for (std::uint64_t round = 0, next = 1; round < 30; ++round) {
    std::set<std::uint32_t> places;
    std::map<std::uint64_t, std::pair<BlockId, std::uint64_t>> loads;
    std::map<TransferId, int> ends;
    for (std::uint32_t block = 1; block < 40; ++block) {
      const auto place = static_cast<std::uint32_t>(random.below(tested_->num_places()));
      if (!places.insert(place).second) continue;
      ends[TransferId{next}] = 0;
      if (stored.contains(place) && random.chance(0.6)) {
        loads[next] = {BlockId{block}, stored[place].second};
        start(next++, TransferDirection::load, 0, {BlockId{block}}, {stored[place].first});
      } else {
        const std::uint64_t number = random.below(1000);
        cache_.fill(BlockId{block}, number);
        stored[place] = {tested_->assign(place, tier_name(number)), number};
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

// An end is reported once. A thread may wait for it again.
TEST_P(TransportContractTest, AllowsWaitingForAnEndedTransfer) {
  start(1, TransferDirection::store, 1, {BlockId{5}}, {tested_->assign(0, tier_name(1))});
  EXPECT_EQ(end_of(1).outcome, TransferOutcome::done);
  transport_->wait(TransferId{1});
  transport_->wait(TransferId{7});
  std::vector<TransferCompletion> over;
  transport_->poll(over);
  EXPECT_TRUE(over.empty());
  transport_->detach();
  EXPECT_EQ(num_notices_, 1);
}

// The pages may be freed when detach() returns, even if transfers were in flight.
TEST_P(TransportContractTest, TouchesNoPageAfterDetach) {
  std::vector<BlockId> blocks;
  std::vector<std::uint64_t> places;
  for (std::uint32_t i = 1; i < 40; ++i) {
    blocks.push_back(BlockId{i});
    places.push_back(tested_->assign(i, tier_name(i)));
    cache_.fill(BlockId{i}, i);
  }
  start(1, TransferDirection::store, 0, blocks, places);
  transport_->wait(TransferId{1});
  start(2, TransferDirection::load, 0, blocks, places);
  transport_->detach();
  for (const BlockId block : blocks) cache_.fill(block, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (const BlockId block : blocks) EXPECT_TRUE(cache_.holds(block, 1000, 0));
}

}  // namespace quire::test
