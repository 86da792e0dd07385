// The rest of spoiled_test.cpp: counts that are kept beside what they count, and the ledgers of pins and transfers.
#include <gtest/gtest.h>

#include <utility>

#include "core/schedule/core_driver.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/requests/forking.h"
#include "core/schedule/requests/turns.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;

// Request 1 has ended and is pinned, request 2 runs.
CoreDriver one_is_pinned_one_runs() {
  CoreDriver d(test::continuum_config(32));
  test::add_turn(d, 1, 8, {.job = "a", .tool = "ls"});
  d.step();
  d.add(2, 8, 20);
  d.step();
  EXPECT_EQ(test::pinned(d), test::Ids{1});
  return d;
}

TEST(SpoiledCountsDeathTest, WhoRunsWaitsForInputOrIsKeptIsCounted) {
  CoreDriver d = one_is_pinned_one_runs();
  Core::State& s = *d.core->state_;
  EXPECT_DEATH(
      {
        s.queues.running.pop_back();
        d.core->check_invariants();
      },
      "everything that runs is in the batch");
  EXPECT_DEATH(
      {
        ++s.queues.num_waiting_for_input;
        d.core->check_invariants();
      },
      "invariants.cpp.*sessions between two inputs are counted");
  EXPECT_DEATH(
      {
        ++s.queues.num_waiting_for_input;
        (void)d.core->counters();
      },
      "sessions between two inputs are passed over");
  EXPECT_DEATH(
      {
        ++s.queues.num_loading;
        d.core->check_invariants();
      },
      "requests that a transfer holds are counted");
  EXPECT_DEATH(
      {
        ++s.ended.ledger_.num_transfer_;
        d.core->check_invariants();
      },
      "requests that a transfer holds are counted");
  EXPECT_DEATH(
      {
        ++s.ended.ledger_.num_pin_;
        d.core->check_invariants();
      },
      "requests that are pinned are counted");
  EXPECT_DEATH(
      {
        s.jobs.agent().pins.pins_.clear();
        d.core->check_invariants();
      },
      "requests that are pinned are counted");
}

TEST(SpoiledCountsDeathTest, APinnedRequestIsKnown) {
  CoreDriver d = one_is_pinned_one_runs();
  EXPECT_DEATH(
      {
        d.core->state_->table.find_any(RequestId{1})->known = false;
        d.core->end_pins();
      },
      "a pinned request is known");
}

TEST(SpoiledCountsDeathTest, OpenTransfersAreInOrderAndCountedByBlock) {
  OpenTransfers open(4, 2);
  const BlockId blocks[] = {BlockId{1}, BlockId{3}};
  const std::uint64_t places[] = {7, 8};
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(open.open({.id = {}, .request = {}, .blocks = blocks, .places = places}).has_value());
  open.check_invariants();
  EXPECT_DEATH(
      {
        std::swap(open.entries_[0].id, open.entries_[1].id);
        open.check_invariants();
      },
      "transfers are in order");
  EXPECT_DEATH(
      {
        open.entries_[1].id = open.next_id_;
        open.check_invariants();
      },
      "transfers are in order");
  EXPECT_DEATH(
      {
        open.entries_[1].id = open.entries_[0].id;
        open.check_invariants();
      },
      "transfers are in order");
  EXPECT_DEATH(
      {
        ++open.num_needed_;
        open.check_invariants();
      },
      "loads that a step needs are counted");
  EXPECT_DEATH(
      {
        --open.num_touching_[1];
        open.check_invariants();
      },
      "the transfers of each block are counted");
  EXPECT_DEATH(
      {
        open.max_open_ = 1;
        open.check_invariants();
      },
      "the transfers of each block are counted");
}

// Nobody asks for it, but memory would grow with each family.
TEST(SpoiledCounts, OfAFamilyThatHasEndedNothingIsKept) {
  CoreDriver d(test::sync_config());
  d.add(1, 6, 4);
  d.step();
  test::must_fork(d, 1, 2);
  test::must_fork(d, 1, 3);
  ASSERT_EQ(d.core->state_->forks.families().size(), 1U);
  while (d.core->has_work()) d.step();
  EXPECT_TRUE(d.core->state_->forks.families().empty());
}

TEST(SpoiledCountsDeathTest, AJobHasItsRequestsOnce) {
  CoreDriver d = one_is_pinned_one_runs();
  Core::State& s = *d.core->state_;
  EXPECT_DEATH(s.jobs.join(*s.table.find_any(RequestId{1}), 0.0), "a request joins its job once");
  EXPECT_DEATH(
      {
        s.table.find_any(RequestId{1})->status = RequestStatus::running;
        s.jobs.leave(*s.table.find_any(RequestId{1}));
      },
      "a request leaves its job when it has ended");
  EXPECT_DEATH(
      {
        s.table.find_any(RequestId{1})->known = false;
        d.core->visit([](QueueKind, const RequestView&) {});
      },
      "snapshot.cpp.*a pinned request is known");
}

}  // namespace
}  // namespace quire
