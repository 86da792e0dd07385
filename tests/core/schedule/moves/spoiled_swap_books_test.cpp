// Which books of swapped requests a checkpoint may have.
#include <gtest/gtest.h>

#include "core/schedule/moves/one_is_swapped.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::one_is_swapped;

TEST(SpoiledSwapBooksDeathTest, APlaceBehindTheLastOneIsNone) {
  CoreDriver d = one_is_swapped();
  Swap& swap = d.core->state_->swap;
  ASSERT_EQ(swap.broken_rule(), nullptr);
  swap.free_places_.push_back(4);
  EXPECT_NE(swap.broken_rule(), nullptr);
  EXPECT_DEATH(d.core->check_invariants(), "a swap place is free or has one owner");
}

// As a checkpoint is read: nobody knows his swapped blocks yet, nor they their transfers.
bool fits(Swap& swap, std::span<const Swap::Moving> moving) {
  swap.open_.clear();
  for (const auto& swapped : swap.swapped_)
    if (swapped->request != nullptr) swapped->request->swapped = nullptr;
  return swap.assign(moving);
}

TEST(SpoiledSwapBooks, TransfersThatAreReadAreThoseOfTheBlocksThatAreRead) {
  CoreDriver d = one_is_swapped();
  Swap& swap = d.core->state_->swap;
  const std::vector<Swap::Moving> good = swap.to_moving();
  ASSERT_EQ(good.size(), 1U);
  EXPECT_TRUE(fits(swap, good));
  EXPECT_FALSE(fits(swap, {})) << "one is open";
  for (const std::uint32_t num_open : {0U, 2U}) {
    swap.swapped_[0]->num_open = num_open;
    EXPECT_FALSE(fits(swap, good)) << num_open << " are not one";
  }
  swap.swapped_[0]->num_open = 0;
  const std::vector<Swap::Moving> of_nobody = {{.id = good[0].id, .place = 1}};
  EXPECT_FALSE(fits(swap, of_nobody)) << "only one request is swapped out";
  swap.swapped_[0]->num_open = 1;
  EXPECT_TRUE(fits(swap, good));
}

TEST(SpoiledSwapBooks, ARequestIsReadAsSwappedOutOnce) {
  CoreDriver d = one_is_swapped();
  Swap& swap = d.core->state_->swap;
  const std::vector<Swap::Moving> good = swap.to_moving();
  swap.swapped_.push_back(std::make_unique<SwappedBlocks>());
  EXPECT_TRUE(fits(swap, good)) << "nobody wants the other ones";
  swap.swapped_[1]->request = swap.swapped_[0]->request;
  EXPECT_FALSE(fits(swap, good));
}

}  // namespace
}  // namespace quire
