// The rest of spoiled_test.cpp: the books of swapped requests.
#include <gtest/gtest.h>

#include "core/schedule/moves/one_is_swapped.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::one_is_swapped;

TEST(SpoiledSwapDeathTest, PlacesHaveOneOwner) {
  CoreDriver d = one_is_swapped();
  Swap& swap = d.core->state_->swap;
  EXPECT_DEATH(
      {
        swap.free_places_.push_back(0);
        d.core->check_invariants();
      },
      "a swap place is free or has one owner");
  EXPECT_DEATH(
      {
        swap.swapped_[0]->places.pop_back();
        d.core->check_invariants();
      },
      "a swap place is free or has one owner");
}

TEST(SpoiledSwapDeathTest, ARequestAndItsBlocksKnowEachOther) {
  CoreDriver d = one_is_swapped();
  Swap& swap = d.core->state_->swap;
  EXPECT_DEATH(
      {
        swap.swapped_[0]->request->swapped = nullptr;
        d.core->check_invariants();
      },
      "a request knows its swapped blocks");
  EXPECT_DEATH(swap.release(*swap.swapped_[0]), "nobody moves or wants these blocks");
  EXPECT_DEATH(
      {
        SwappedBlocks& swapped = *swap.swapped_[0];
        swapped.request = nullptr;
        swapped.num_open = 0;
        swap.release(swapped);
        swap.release(swapped);
      },
      "blocks are released once");
}

TEST(SpoiledSwapDeathTest, TransfersAreCounted) {
  CoreDriver d = one_is_swapped();
  Core::State& s = *d.core->state_;
  EXPECT_DEATH(
      {
        s.swap.open_.clear();
        d.core->check_invariants();
      },
      "transfers of swapped blocks are counted");
  EXPECT_DEATH(s.swap.over({.transfer = TransferId{9}}), "the transfers of swapped blocks are counted");
  EXPECT_DEATH(
      {
        s.swap.to_begin_.push_back(s.swap.swapped_[0].get());
        s.swap.forget(*s.swap.swapped_[0]->request);
      },
      "its transfers are begun or over");
  EXPECT_DEATH(
      {
        s.open_transfers.max_open_ = 1;
        s.swap.swapped_[0]->num_open = 0;
        s.swap.to_begin_.push_back(s.swap.swapped_[0].get());
        d.plan();
      },
      "there was room for these transfers");
}

TEST(SpoiledSwapDeathTest, EachStageFollowsTheOneBefore) {
  CoreDriver d = one_is_swapped();
  Core::State& s = *d.core->state_;
  SwappedBlocks& swapped = *s.swap.swapped_[0];
  Request& request = *swapped.request;
  PlanArena arena;
  EXPECT_DEATH((void)s.swap.bring_back(request, 0), "what comes back was stored");
  EXPECT_DEATH(s.swap.begin(swapped, arena), "its transfers begin in one plan");
  EXPECT_DEATH(s.swap.loads_over(swapped), "loads that somebody waits for");
  EXPECT_DEATH(
      {
        swapped.stage = SwappedBlocks::Stage::stored;
        s.swap.stores_over(swapped);
      },
      "stores that somebody waits for");
  EXPECT_DEATH((void)s.swap.take_out(request, false), "a request is swapped out once at a time");
  EXPECT_DEATH(s.preemption.put_back(request), "what is computed again is not swapped out");
  EXPECT_DEATH(
      {
        request.status = RequestStatus::waiting_for_remote_kv;
        s.swap.forget(request);
      },
      "requests whose blocks are being loaded are counted");
  EXPECT_DEATH(
      {
        swapped.request = nullptr;
        swapped.num_open = 0;
        swapped.places.push_back(0);
        s.swap.free_places_.assign(4, 0);
        s.swap.release(swapped);
      },
      "a place comes back once");
}

}  // namespace
}  // namespace quire
