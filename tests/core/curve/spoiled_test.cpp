// What no core tells a sampler, and orders of release that disagree with themselves: each is noticed by who meets it next.
#include <gtest/gtest.h>

#include <vector>

#include "core/curve/reuse_stack.h"
#include "core/schedule/core_driver.h"
#include "quire/lab/curve.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::sync_config;

// Names 1 to 3 were released in this order, at a rate of 1.
ReuseStack three_released() {
  ReuseStack stack(4, 100.0, 1.0);
  for (const std::uint64_t key : {1U, 2U, 3U}) stack.release(key);
  return stack;
}

TEST(SpoiledCurveDeathTest, AStackHasRoomAndSomethingToSample) {
  EXPECT_DEATH(ReuseStack(0, 1.0, 1.0), "there is room for a name");
  EXPECT_DEATH(ReuseStack(1, 1.0, 0.0), "there is room for a name");
  EXPECT_DEATH(ReuseStack(1, 1.0, 1.5), "there is room for a name");
}

TEST(SpoiledCurveDeathTest, AReleasedNameIsInTheSlotThatItKnows) {
  ReuseStack stack = three_released();
  const std::uint32_t place = stack.place_of(2), slot = stack.names_[place].slot;
  EXPECT_DEATH((void)stack.num_after_slot(stack.next_slot_), "a slot that has been given");
  const char* const message = "a name is in the slot that it knows";
  EXPECT_DEATH(
      {
        stack.names_[place].slot = stack.next_slot_;
        stack.hold(2);
      },
      message);
  EXPECT_DEATH(
      {
        stack.slots_[slot] = stack.place_of(3);
        stack.hold(2);
      },
      message);
  EXPECT_DEATH(
      {
        stack.num_released_ = 0;
        stack.hold(2);
      },
      message);
}

TEST(SpoiledCurveDeathTest, SlotsAndPlacesAreCounted) {
  ReuseStack stack = three_released();
  stack.check_invariants();
  EXPECT_DEATH(
      {
        ++stack.per_group_[0];
        stack.check_invariants();
      },
      "and so they are group by group");
  EXPECT_DEATH(
      {
        stack.names_[stack.place_of(1)].key = 4;
        stack.check_invariants();
      },
      "in the chain where it is looked for");
  EXPECT_DEATH(
      {
        stack.next_slot_ = static_cast<std::uint32_t>(stack.slots_.size());
        stack.occupy(stack.place_of(2));
      },
      "renumbered before slots run out");
  EXPECT_DEATH(
      {
        ++stack.num_released_;
        stack.renumber();
      },
      "half of the slots at least were vacant");
  EXPECT_DEATH(
      {
        stack.num_tracked_ = 4;
        stack.release(4);
      },
      "unused places are not counted as tracked");
  EXPECT_DEATH(
      {
        stack.buckets_.assign(stack.buckets_.size(), ReuseStack::kNone);
        stack.remove(0);
      },
      "a name is in the chain of its bucket");
  ReuseStack empty(4, 100.0, 1.0);
  EXPECT_DEATH(empty.drop_oldest(), "there is an oldest one");
}

TEST(SpoiledCurveDeathTest, AnEventIsOfARequestOfThisCore) {
  const CoreConfig config = sync_config();
  CurveSampler sampler(CurveOptions::of(config));
  CoreDriver d(config, {.events = &sampler});
  sampler.follow(*d.core);
  d.add(1, 8, 20);
  EXPECT_DEATH(sampler.on_event({.what = EventKind::admitted, .owner = RequestId{2}}), "who is admitted is known");
  EXPECT_DEATH(
      {
        sampler.on_event({.what = EventKind::prefix_looked_up, .owner = RequestId{1}, .amount = 9});
        sampler.on_event({.what = EventKind::admitted, .owner = RequestId{1}, .amount = 9, .total = 8});
      },
      "no more is found than was asked for");
}

TEST(SpoiledCurveDeathTest, ACurveHasTheCachesOwnSizeAndWholeNames) {
  const CurveOptions good = CurveOptions::of(sync_config());
  const auto with = [&](auto change) {
    CurveOptions options = good;
    change(options);
    return options;
  };
  const char* const names = "blocks have whole names";
  EXPECT_DEATH(CurveSampler(with([](CurveOptions& o) { o.num_blocks = 0; })), names);
  EXPECT_DEATH(CurveSampler(with([](CurveOptions& o) { o.hash_block_size = 0; })), names);
  EXPECT_DEATH(CurveSampler(with([](CurveOptions& o) { o.hash_block_size = 3; })), names);
  EXPECT_DEATH(CurveSampler(with([](CurveOptions& o) { std::erase(o.sizes, std::uint64_t{o.num_blocks}); })),
               "curve_sampler.cpp.*the cache's own size is one of them");
  const CacheCurve curve{.num_blocks = 3, .sizes = {2, 4}, .all = {.query_tokens = 8.0, .hit_tokens = {1.0, 2.0}}};
  EXPECT_DEATH((void)hit_rates(curve, curve.all), "curve_rows.cpp.*the cache's own size is one of them");
  EXPECT_DEATH((void)curve_rows(curve, {}, {}), "curve_rows.cpp.*the cache's own size is one of them");
}

}  // namespace
}  // namespace quire
