// What no core tells an explainer, and memories of blocks that disagree with themselves.
#include <gtest/gtest.h>

#include "base/random.h"
#include "core/explain/block_memory.h"
#include "core/explain/misses.h"
#include "core/schedule/core_driver.h"
#include "quire/lab/explain.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::sync_config;
using test::Tokens;

TEST(SpoiledExplainDeathTest, OfANameIsKnownWhoHoldsIt) {
  EXPECT_DEATH(BlockMemory(0, 4), "there is room for a name");
  BlockMemory memory(1, 4);
  memory.stored(7, 0, {});
  const BlockStory other;
  EXPECT_DEATH((void)memory.tokens_of(other), "a story of this memory");
  EXPECT_DEATH(memory.note_loss(0, Loss::evicted, {}), "a name is lost with the last block that has it");
  memory.lost(7, Loss::evicted, {});
  EXPECT_DEATH(
      {
        memory.stories_[0].num_copies = 1;
        memory.stored(8, 0, {});
      },
      "only what no block holds makes room");
  EXPECT_DEATH(
      {
        memory.buckets_.assign(memory.buckets_.size(), BlockMemory::kNone);
        memory.forget(0);
      },
      "a name is in the chain of its bucket");
}

TEST(SpoiledExplainDeathTest, TheLostAreAListFromTheOldestOn) {
  BlockMemory memory(3, 4);
  for (const std::uint64_t key : {7U, 8U, 9U}) memory.stored(key, 0, {});
  for (const std::uint64_t key : {8U, 7U, 9U}) memory.lost(key, Loss::evicted, {});
  memory.check_invariants();
  EXPECT_DEATH(
      {
        memory.links_[0].older = 2;
        memory.check_invariants();
      },
      "the lost are a list of names that no block holds");
  EXPECT_DEATH(
      {
        memory.stories_[1].lost_at = memory.now() + 1;
        memory.check_invariants();
      },
      "the oldest loss comes first");
  EXPECT_DEATH(memory.push_newest(0), "what is lost was not lost already");
}

TEST(SpoiledExplain, AMemoryOfBlocksIsWholeWhateverItWasTold) {
  Random random(3);
  BlockMemory memory(6, 4);
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t key = 1 + random.below(12);
    if (random.chance(0.002))
      memory.reset({});
    else if (random.chance(0.5))
      memory.stored(key, 1 + random.below(12), {});
    else
      memory.lost(key, Loss::evicted, {});
    memory.check_invariants();
  }
}

TEST(SpoiledExplainDeathTest, AnExplainerFollowsOneCoreWithWholeNames) {
  const CoreConfig config = sync_config();
  for (const auto& [block_size, hash_block_size] : {std::pair(0U, 4U), std::pair(4U, 0U), std::pair(4U, 3U)}) {
    ExplainOptions options = ExplainOptions::of(config);
    options.block_size = block_size;
    options.hash_block_size = hash_block_size;
    EXPECT_DEATH(Explainer{options}, "blocks have whole names");
  }
  Explainer explainer(ExplainOptions::of(config));
  EXPECT_DEATH(explainer.on_event({.what = EventKind::queued, .owner = RequestId{1}}), "it follows a core");
  CoreDriver d(config, {.events = &explainer});
  explainer.follow(*d.core);
  EXPECT_DEATH(explainer.follow(*d.core), "it follows one core");
}

TEST(SpoiledExplain, OfARequestThatTheCoreDoesNotKnowNothingIsKept) {
  const CoreConfig config = sync_config();
  Explainer explainer(ExplainOptions::of(config));
  CoreDriver d(config, {.events = &explainer});
  explainer.follow(*d.core);
  explainer.on_event({.what = EventKind::queued, .owner = RequestId{7}});
  EXPECT_FALSE(explainer.explain(RequestId{7}, 0.0).has_value());
  for (const EventKind what :
       {EventKind::passed_over, EventKind::admission_tried, EventKind::admitted, EventKind::preempted, EventKind::ended})
    explainer.on_event({.what = what, .cause = EventCause::adapter, .owner = RequestId{7}});
  explainer.on_event({.what = EventKind::step_begins, .time_s = 1.0});
  EXPECT_FALSE(explainer.explain(RequestId{7}, 0.0).has_value());
}

TEST(SpoiledExplain, BlocksAreJudgedByWhatIsRememberedAndByTheirNames) {
  const ExplainOptions options = ExplainOptions::of(sync_config());
  const Tokens tokens = CoreDriver::prompt(1, 8);
  std::vector<std::uint8_t> names(64);
  names[0] = 1;   // of the first block,
  names[32] = 2;  // and of the second
  RequestView view;
  view.tokens = tokens;
  view.block_hashes = names;
  BlockMemory memory(4, 4);
  memory.stored(1, 0, {});
  memory.stored(2, 0, {});
  const auto causes = [&](LookedUp look_up) {
    look_up.at = memory.now();
    RequestExplanation facts;
    explain_admission(view, look_up, 0, 8, memory, options, facts);
    std::vector<MissCause> found;
    found.reserve(facts.misses.size());
    for (const MissFact& miss : facts.misses) found.push_back(miss.cause);
    return found;
  };
  using Causes = std::vector<MissCause>;
  EXPECT_EQ(causes({}), (Causes{MissCause::not_looked_up})) << "nobody looked, and so nothing failed to come";
  EXPECT_EQ(causes({.is_known = true, .in_cache = true}), (Causes{MissCause::other_group, MissCause::behind_a_miss}))
      << "the first is there, and was not of use";
  EXPECT_EQ(causes({.is_known = true, .in_cache = true, .num_external = 4}), (Causes{MissCause::load_failed, MissCause::behind_a_miss}));
  memory.lost(2, Loss::forgotten, {});
  EXPECT_EQ(causes({.is_known = true, .in_cache = true}), (Causes{MissCause::other_group, MissCause::forgotten}));
  view.block_hashes = std::span(names).first(32);
  EXPECT_EQ(causes({.is_known = true, .in_cache = true}), (Causes{MissCause::other_group, MissCause::never_stored}))
      << "a block that has no name yet";
}

TEST(SpoiledExplainDeathTest, AnAdmissionAddsUpAndAPreemptionHasACause) {
  const CoreConfig config = sync_config();
  Explainer explainer(ExplainOptions::of(config));
  CoreDriver d(config, {.events = &explainer});
  explainer.follow(*d.core);
  d.add(1, 8, 20);
  EXPECT_DEATH(explainer.on_event({.what = EventKind::preempted, .owner = RequestId{1}}), "a preemption has a cause");
  EXPECT_DEATH(explainer.on_event({.what = EventKind::admitted, .owner = RequestId{1}, .amount = 9, .total = 8}),
               "no more is there than was asked for");
  const BlockMemory memory(4, 4);
  RequestExplanation facts;
  facts.num_missed = 1;
  EXPECT_DEATH(explain_admission(d.view(1), {}, 0, 8, memory, ExplainOptions::of(config), facts), "a request is explained once");
}

}  // namespace
}  // namespace quire
