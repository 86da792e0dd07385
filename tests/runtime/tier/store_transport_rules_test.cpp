// Tests a transport over a store whose blocks the test moves itself: what a transfer submits, and how it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_support.h"
#include "runtime/tier/toy_cache.h"

namespace quire::test {
namespace {

// Keeps submitted jobs until the test ends them.
class HandStore final : public BlockStore {
 public:
  [[nodiscard]] std::uint32_t num_places() const override { return 16; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return bytes; }
  void submit(TierJob job) override { jobs.push_back(std::move(job)); }
  std::vector<TierJob> jobs;
  std::uint64_t bytes = 9000;
};

class StoreTransportRulesTest : public testing::Test {
 protected:
  void attach(double timeout_s = 600.0, bool cancels = false, std::optional<double> store_timeout_s = std::nullopt) {
    transport_ = std::make_unique<StoreTransport>(store_, timeout_s, cancels, store_timeout_s);
    transport_->attach(cache_.pages(), [this] { ++num_notices_; });
  }
  void start(std::uint64_t id, TransferDirection direction, const std::vector<std::uint64_t>& places, std::uint32_t group = 0) {
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < places.size(); ++i) blocks.push_back(BlockId{1 + i});
    transport_->start({.id = TransferId{id}, .request = {}, .direction = direction, .group = group, .blocks = blocks, .places = places});
  }
  // Ends the job, as a store does after it has copied the bytes.
  void end_job(std::size_t index, TierOutcome outcome) {
    if (outcome == TierOutcome::done) {
      std::vector<std::byte> bytes = tier_block(50 + index, store_->jobs[index].bytes);
      EXPECT_TRUE(store_->jobs[index].copy(bytes));
    }
    store_->jobs[index].over(outcome);
  }
  std::vector<TransferCompletion> ended() {
    over_.clear();
    transport_->poll(over_);
    return over_;
  }

  ToyCache cache_;
  std::atomic<int> num_notices_ = 0;
  std::shared_ptr<HandStore> store_ = std::make_shared<HandStore>();
  std::unique_ptr<StoreTransport> transport_;
  std::vector<TransferCompletion> over_;
};

TEST_F(StoreTransportRulesTest, SubmitsEachBlockWithItsSlotKeyAndSize) {
  attach();
  const std::uint64_t first = transport_->assign(3, tier_name(1)), second = transport_->assign(9, tier_name(2));
  EXPECT_EQ(first, (std::uint64_t{1} << 32U) | 3U);
  EXPECT_EQ(transport_->assign(3, tier_name(1)), (std::uint64_t{2} << 32U) | 3U) << "each assignment has its own number";
  const std::uint64_t renewed = (std::uint64_t{2} << 32U) | 3U;
  start(1, TransferDirection::load, {second, renewed});
  start(2, TransferDirection::store, {second}, 1);
  ASSERT_EQ(store_->jobs.size(), 3U);
  EXPECT_EQ(store_->jobs[0].verb, TierJob::Verb::load);
  EXPECT_EQ(store_->jobs[0].place, 9U);
  EXPECT_EQ(store_->jobs[0].name, tier_name(2));
  EXPECT_EQ(store_->jobs[0].bytes, 9000U);
  EXPECT_EQ(store_->jobs[1].place, 3U);
  EXPECT_EQ(store_->jobs[1].name, tier_name(1));
  EXPECT_EQ(store_->jobs[2].verb, TierJob::Verb::store);
  EXPECT_EQ(store_->jobs[2].bytes, 6000U);
  EXPECT_TRUE(ended().empty());
  EXPECT_EQ(num_notices_, 0);
  // A number from before the last assignment is not submitted.
  start(3, TransferDirection::load, {first});
  EXPECT_EQ(store_->jobs.size(), 3U);
  const auto over = ended();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].transfer, TransferId{3});
  EXPECT_EQ(over[0].outcome, TransferOutcome::failed);
  EXPECT_EQ(over[0].bad_blocks.size(), 1U);
  EXPECT_EQ(num_notices_, 1);
  transport_->detach();
}

TEST_F(StoreTransportRulesTest, EndsWithItsLastBlockAndReportsTheBadOnes) {
  for (const TierOutcome bad : {TierOutcome::done, TierOutcome::absent, TierOutcome::refused, TierOutcome::failed, TierOutcome::cancelled})
    for (const TransferDirection direction : {TransferDirection::load, TransferDirection::store}) {
      attach();
      store_->jobs.clear();
      std::vector<std::uint64_t> places;
      for (std::uint32_t i = 0; i < 3; ++i) places.push_back(transport_->assign(i, tier_name(i)));
      start(1, direction, places);
      end_job(2, TierOutcome::done);
      end_job(0, TierOutcome::done);
      EXPECT_TRUE(ended().empty()) << "a block is left";
      end_job(1, bad);
      const auto over = ended();
      ASSERT_EQ(over.size(), 1U);
      const bool is_good = bad == TierOutcome::done;
      EXPECT_EQ(over[0].outcome, is_good ? TransferOutcome::done : TransferOutcome::failed);
      EXPECT_EQ(over[0].bytes, is_good ? 27000U : 18000U);
      const bool reports = !is_good && direction == TransferDirection::load;
      ASSERT_EQ(over[0].bad_blocks.size(), reports ? 1U : 0U);
      if (reports) EXPECT_EQ(over[0].bad_blocks[0], BlockId{2});
      transport_->detach();
    }
}

TEST_F(StoreTransportRulesTest, TouchesNoPageOfATransferThatIsOver) {
  attach();
  cache_.fill(BlockId{1}, 7);
  start(1, TransferDirection::load, {transport_->assign(0, tier_name(0))});
  transport_->detach();
  const auto over = ended();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].outcome, TransferOutcome::failed);
  EXPECT_EQ(over[0].bad_blocks.size(), 1U);
  std::vector<std::byte> bytes = tier_block(50, 9000);
  EXPECT_FALSE(store_->jobs[0].copy(bytes));
  store_->jobs[0].over(TierOutcome::done);
  EXPECT_TRUE(cache_.holds(BlockId{1}, 7, 0));
  EXPECT_TRUE(ended().empty()) << "a transfer ends once";
  EXPECT_EQ(num_notices_, 1);
}

TEST_F(StoreTransportRulesTest, FailsOpenTransfersWhenItIsDestroyed) {
  attach();
  cache_.fill(BlockId{1}, 7);
  start(1, TransferDirection::load, {transport_->assign(0, tier_name(0))});
  transport_.reset();
  EXPECT_EQ(num_notices_, 1);
  std::vector<std::byte> bytes = tier_block(50, 9000);
  EXPECT_FALSE(store_->jobs[0].copy(bytes));
  EXPECT_TRUE(cache_.holds(BlockId{1}, 7, 0));
}

TEST_F(StoreTransportRulesTest, FailsTransfersOfTheDirectionThatDoesNotMove) {
  for (const TransferDirection slow : {TransferDirection::load, TransferDirection::store}) {
    const bool is_store = slow == TransferDirection::store;
    attach(is_store ? 600.0 : 0.02, false, is_store ? 0.02 : 600.0);
    start(1, TransferDirection::load, {transport_->assign(0, tier_name(0))});
    start(2, TransferDirection::store, {transport_->assign(1, tier_name(1))});
    start(3, slow, {transport_->assign(2, tier_name(2))});
    EXPECT_TRUE(comes_true([&] { return transport_->num_timed_out(slow) == 2; }));
    transport_->wait(TransferId{3});
    const auto over = ended();
    ASSERT_EQ(over.size(), 2U);
    EXPECT_EQ(over[0].transfer, TransferId{is_store ? 2U : 1U}) << "the oldest first";
    EXPECT_EQ(over[1].transfer, TransferId{3});
    for (const TransferCompletion& one : over) EXPECT_EQ(one.outcome, TransferOutcome::failed);
    EXPECT_EQ(transport_->num_timed_out(is_store ? TransferDirection::load : TransferDirection::store), 0U);
    transport_->detach();
    ended();
  }
}

TEST_F(StoreTransportRulesTest, FailsTransfersThatBeginWhileNothingIsOpen) {
  for (const TransferDirection direction : {TransferDirection::load, TransferDirection::store}) {
    const bool is_store = direction == TransferDirection::store;
    attach(is_store ? 600.0 : 0.01, false, is_store ? 0.01 : 600.0);
    for (std::uint64_t id = 1; id <= 5; ++id) {
      start(id, direction, {transport_->assign(0, tier_name(0))});
      EXPECT_TRUE(comes_true([&] { return transport_->num_timed_out(direction) == id; })) << id;
      transport_->wait(TransferId{id});
      ASSERT_EQ(ended().size(), 1U) << id;
    }
    transport_->detach();
  }
}

// The callback may take long.
TEST_F(StoreTransportRulesTest, EndsAWaitBeforeTheCallback) {
  std::atomic<bool> has_waited = false, was_in_time = false;
  transport_ = std::make_unique<StoreTransport>(store_, 600.0);
  transport_->attach(cache_.pages(), [&] { was_in_time = comes_true([&] { return has_waited.load(); }); });
  start(1, TransferDirection::load, {transport_->assign(0, tier_name(0))});
  std::atomic<bool> is_waiting = false;
  std::thread mover([&] {
    comes_true([&] { return is_waiting.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    end_job(0, TierOutcome::done);
  });
  is_waiting = true;
  transport_->wait(TransferId{1});
  has_waited = true;
  mover.join();
  transport_->detach();
  EXPECT_TRUE(was_in_time);
}

TEST_F(StoreTransportRulesTest, CancelsOnlyStoresThatAStepWaitsFor) {
  attach(600.0, true);
  start(1, TransferDirection::store, {transport_->assign(0, tier_name(0)), transport_->assign(1, tier_name(1))});
  start(2, TransferDirection::store, {transport_->assign(2, tier_name(2))});
  end_job(0, TierOutcome::done);
  transport_->wait(TransferId{1});
  auto over = ended();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].transfer, TransferId{1});
  EXPECT_EQ(over[0].outcome, TransferOutcome::failed);
  end_job(2, TierOutcome::done);
  over = ended();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].outcome, TransferOutcome::done) << "no step waited for the other store";
  transport_->wait(TransferId{99});
  // A load is awaited.
  start(3, TransferDirection::load, {transport_->assign(3, tier_name(3))});
  std::thread mover([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    end_job(3, TierOutcome::done);
  });
  transport_->wait(TransferId{3});
  mover.join();
  over = ended();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].outcome, TransferOutcome::done);
  EXPECT_EQ(transport_->num_timed_out(TransferDirection::store), 0U);
  transport_->detach();
}

TEST_F(StoreTransportRulesTest, ReadsABlockOfTheCacheWhileItIsAttached) {
  transport_ = std::make_unique<StoreTransport>(store_, 600.0);
  std::vector<std::byte> bytes(9000);
  EXPECT_FALSE(transport_->read_block(0, BlockId{4}, bytes));
  transport_->attach(cache_.pages(), [] {});
  cache_.fill(BlockId{4}, 6);
  ASSERT_TRUE(transport_->read_block(0, BlockId{4}, bytes));
  EXPECT_TRUE(std::ranges::equal(std::span(bytes).first(6000), tier_block(12, 6000)));
  EXPECT_TRUE(std::ranges::equal(std::span(bytes).last(3000), tier_block(13, 3000)));
  std::vector<std::byte> one(6000);
  ASSERT_TRUE(transport_->read_block(1, BlockId{4}, one));
  EXPECT_TRUE(std::ranges::equal(one, tier_block(12, 6000)));
  transport_->detach();
  EXPECT_FALSE(transport_->read_block(0, BlockId{4}, bytes));
}

TEST(StoreTransportRulesDeathTest, NeedsRoomForABlockOfEachGroup) {
  ToyCache cache;
  const auto store = std::make_shared<HandStore>();
  store->bytes = 8999;
  for (int order = 0; order < 2; ++order) {
    StoreTransport transport(store, 600.0);
    EXPECT_DEATH(transport.attach(cache.pages(), [] {}), "large enough for a block of each group");
    std::swap(cache.layout.groups[0], cache.layout.groups[1]);
  }
}

}  // namespace
}  // namespace quire::test
