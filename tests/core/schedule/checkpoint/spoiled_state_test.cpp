// A checkpoint of a state that disagrees with itself is refused, and the error says in what: a field is spoiled, one at a time, before it
// is written.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "core/kv/kv_coordinator.h"
#include "core/schedule/core_driver.h"
#include "core/schedule/moves/one_is_swapped.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;

constexpr std::int32_t kTooMany = (1 << 30) + 1;

struct Spoiling {
  const char* rule;
  std::function<void(Core::State&, Request&)> spoil;
};

TEST(SpoiledState, IsRefusedByTheRuleThatItBreaks) {
  const std::vector<Spoiling> spoilings = {
      {"a prompt is among the tokens", [](Core::State&, Request& r) { r.num_prompt_tokens = r.num_tokens() + 1; }},
      {"a prompt is among the tokens", [](Core::State&, Request& r) { r.num_prompt_tokens = -1; }},
      {"counts of tokens are small", [](Core::State&, Request& r) { r.num_computed_tokens = kTooMany; }},
      {"counts of tokens are small", [](Core::State&, Request& r) { r.num_computed_tokens = -kTooMany; }},
      {"counts of tokens are small", [](Core::State&, Request& r) { r.num_output_placeholders = kTooMany; }},
      {"counts of tokens are small", [](Core::State&, Request& r) { r.num_output_placeholders = -kTooMany; }},
      {"a slot is one of the batch", [](Core::State&, Request& r) { r.slot = Slot{8}; }},
      {"a slot is one of the batch", [](Core::State& s, Request&) { s.slots.free_.back() = Slot{8}; }},
      {"a slot is one of the batch", [](Core::State& s, Request&) { s.slots.released_.push_back(Slot{8}); }},
      {"who is gone is there once", [](Core::State& s, Request& r) { s.ended.gone_.push_back(&r); }},
      {"holders are known", [](Core::State&, Request& r) { r.holders = 4; }},
      {"a request was in plans that were made", [](Core::State& s, Request& r) { r.last_step = s.plans.next_step(); }},
      {"a connector was asked for plans that were made", [](Core::State& s, Request& r) { r.asked_early = s.plans.next_step(); }},
      {"a request knows its place in a plan", [](Core::State&, Request& r) { r.last_index = 1; }},
      {"a family is known", [](Core::State&, Request& r) { r.family = 9; }},
      {"the transfers of a request are counted", [](Core::State&, Request& r) { r.num_open_loads = 1; }},
      {"the transfers of a request are counted", [](Core::State&, Request& r) { r.num_open_stores = 1; }},
      {"computed tokens are counted", [](Core::State&, Request& r) { r.num_computed_tokens = -1; }},
      {"no more is computed than is known or awaited", [](Core::State&, Request& r) { r.num_computed_tokens = r.num_tokens() + 1; }},
      {"what is awaited is counted", [](Core::State&, Request& r) { r.num_output_placeholders = -1; }},
      {"whose blocks have come awaits them", [](Core::State&, Request& r) { r.finished_receiving = true; }},
      {"whose blocks have come awaits them", [](Core::State&, Request& r) { r.failed_receiving = true; }},
      {"who has a bad grammar waits for it", [](Core::State&, Request& r) { r.grammar_failed = true; }},
      {"counted by the outstanding plans", [](Core::State&, Request& r) { r.num_tokens_in_flight = 2; }},
      {"counted by the outstanding plans", [](Core::State&, Request& r) { r.num_tokens_in_flight = 0; }},
      {"what is stale is in flight", [](Core::State&, Request& r) { r.num_stale_tokens = 2; }},
      {"what is stale is in flight", [](Core::State&, Request& r) { r.num_stale_tokens = -1; }},
      {"structured output has a grammar", [](Core::State&, Request& r) { r.structured_output = true; }},
      {"what is computed has room", [](Core::State&, Request& r) { r.blocks.groups_[0].blocks.pop_back(); }},
      {"what is not cached has no name", [](Core::State&, Request& r) { r.blocks.groups_[0].num_cached_blocks = 1; }},
      {"hits are among what was asked for", [](Core::State& s, Request&) { s.kv.stats_.hits = s.kv.stats_.queries + 1; }},
      {"hits are among what was asked for", [](Core::State& s, Request&) { ++s.kv.stats_.preempted_hits; }},
      {"not so that blocks are of the pool",
       [](Core::State& s, Request&) {
         const BlockId next{s.kv.pool().num_blocks()};
         s.kv.coordinator_->each([&](auto& manager, std::size_t) { manager.new_block_ids_.push_back(next); });
       }},
      {"embeddings are counted", [](Core::State& s, Request&) { s.encoder.cache().num_free_ = -1; }},
      {"embeddings are counted", [](Core::State& s, Request&) { s.encoder.cache().num_freeable_ = -1; }},
      {"embeddings are counted", [](Core::State& s, Request&) { s.encoder.cache().num_free_ = (std::int64_t{1} << 48) + 1; }},
      {"embeddings are counted", [](Core::State& s, Request&) { s.encoder.cache().num_freeable_ = (std::int64_t{1} << 48) + 1; }},
  };
  for (std::size_t i = 0; i < spoilings.size(); ++i) {
    CoreDriver d(test::sync_config());
    d.add(1, 8, 20);
    d.step();
    d.plan();
    ASSERT_TRUE(Core::restore(test::sync_config(), {}, d.core->checkpoint()).has_value());
    Core::State& s = *d.core->state_;
    spoilings[i].spoil(s, *s.table.find_any(RequestId{1}));
    const auto restored = Core::restore(test::sync_config(), {}, d.core->checkpoint());
    ASSERT_FALSE(restored.has_value()) << i;
    EXPECT_EQ(restored.error().field, "checkpoint");
    EXPECT_NE(restored.error().to_string().find(spoilings[i].rule), std::string::npos) << i << ": " << restored.error().to_string();
  }
}

TEST(SpoiledState, WhatIsComputedLiesInBlocks) {
  CoreDriver d(test::sync_config());
  d.add(1, 8, 20);
  ASSERT_TRUE(Core::restore(test::sync_config(), {}, d.core->checkpoint()).has_value());
  d.core->state_->table.find_any(RequestId{1})->num_computed_tokens = 1;
  const auto refused = Core::restore(test::sync_config(), {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("what is computed lies in blocks"), std::string::npos) << refused.error().to_string();
}

// As large as they may be they pass this rule; another one may refuse them.
TEST(SpoiledState, CountsMayBeLarge) {
  for (const std::int32_t count : {kTooMany - 1, 1 - kTooMany}) {
    CoreDriver d(test::sync_config());
    d.add(1, 8, 20);
    d.core->state_->table.find_any(RequestId{1})->num_computed_tokens = count;
    const auto restored = Core::restore(test::sync_config(), {}, d.core->checkpoint());
    if (!restored) EXPECT_EQ(restored.error().to_string().find("counts of tokens are small"), std::string::npos);
  }
}

TEST(SpoiledState, AsManyEmbeddingsAsMayBeAreTaken) {
  CoreDriver d(test::sync_config());
  EncoderCache& cache = d.core->state_->encoder.cache();
  cache.num_free_ = cache.num_freeable_ = std::int64_t{1} << 48;
  const auto restored = Core::restore(test::sync_config(), {}, d.core->checkpoint());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  EXPECT_EQ((*restored)->state_->encoder.cache().num_free_, std::int64_t{1} << 48);
}

TEST(SpoiledState, InputsOfAPlanAreTheRequests) {
  CoreConfig config = test::sync_config();
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 16;
  CoreDriver d(config);
  const test::Tokens prompt = CoreDriver::prompt(1, 8);
  const std::vector<MultimodalFeature> items = {{"image", PlaceholderRange(1, 2)}};
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.multimodal = items;
  d.add(request);
  ASSERT_EQ(d.plan().scheduled[0].encoder_inputs.size(), 1U);
  ASSERT_TRUE(Core::restore(config, {}, d.core->checkpoint()).has_value());
  d.core->state_->table.find_any(RequestId{1})->features.clear();
  const auto restored = Core::restore(config, {}, d.core->checkpoint());
  ASSERT_FALSE(restored.has_value());
  EXPECT_NE(restored.error().to_string().find("inputs are the request's"), std::string::npos) << restored.error().to_string();
}

// Those by which a request holds an encoder's outputs, and whose inputs had two sizes: both come along, and are the requests'.
TEST(SpoiledState, HeldInputsAreTheRequests) {
  CoreConfig config = test::sync_config();
  config.decisions = DecisionProfile::vllm_0_32;
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 16;
  CoreDriver d(config);
  const test::Tokens prompt = CoreDriver::prompt(1, 8), other = CoreDriver::prompt(2, 8);
  const std::vector<MultimodalFeature> items = {{"image", PlaceholderRange(1, 2)}, {"image", PlaceholderRange(4, 2)}};
  const std::vector<MultimodalFeature> larger = {{"image", PlaceholderRange(1, 3)}};
  NewRequest request = CoreDriver::request(1, prompt, 4), mismatched = CoreDriver::request(2, other, 4);
  request.multimodal = items;
  d.add(request);
  d.plan();
  const std::vector<std::uint8_t> good = d.core->checkpoint();
  d.apply();
  mismatched.multimodal = larger;
  d.add(mismatched);
  d.plan();
  Core::State& s = *d.core->state_;
  EXPECT_EQ(test::values(s.encoder.mismatched()), test::Ids{2});
  EXPECT_EQ(test::values(Core::restore(config, {}, d.core->checkpoint()).value()->state_->encoder.mismatched()), test::Ids{2});
  EXPECT_EQ(d.apply().retired, test::Ids{2});

  auto again = Core::restore(config, {}, good);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_TRUE((*again)->checkpoint() == good);
  std::vector<std::uint32_t> held;
  EncoderCache& cache = (*again)->state_->encoder.cache();
  cache.cached_inputs({RequestId{1}, items}, held);
  EXPECT_EQ(held, (std::vector<std::uint32_t>{0, 1}));
  cache.held_.at(RequestId{1}).add(2);
  const auto refused = Core::restore(config, {}, (*again)->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("held inputs are the request's"), std::string::npos) << refused.error().to_string();
  cache.held_.at(RequestId{1}).table_.assign(8, 1);
  EXPECT_FALSE(Core::restore(config, {}, (*again)->checkpoint()).has_value()) << "a set has room";
}

TEST(SpoiledState, ASwappedBlockHasAPlaceInItsRequestsList) {
  const CoreConfig config = test::swapping_config();
  CoreDriver d = test::one_is_swapped();
  ASSERT_TRUE(Core::restore(config, {}, d.core->checkpoint()).has_value());
  SwappedBlocks& swapped = *d.core->state_->swap.swapped_[0];
  TakenBlock& taken = swapped.blocks.back();
  std::vector<BlockId>& list = swapped.request->blocks.groups_[taken.group].blocks;
  const auto expect_refused = [&](const char* what) {
    const auto refused = Core::restore(config, {}, d.core->checkpoint());
    ASSERT_FALSE(refused.has_value()) << what;
    EXPECT_NE(refused.error().to_string().find("has a place in its request's list"), std::string::npos) << refused.error().to_string();
  };
  const std::uint32_t index = std::exchange(taken.index, static_cast<std::uint32_t>(list.size()));
  expect_refused("behind the list");
  taken.index = index;
  list[index] = BlockId{1};
  expect_refused("another block is there");
}

TEST(SpoiledState, SwappedBlocksThatAreStoredDoNotMove) {
  CoreDriver d = test::one_is_swapped();
  d.core->state_->swap.swapped_[0]->stage = SwappedBlocks::Stage::stored;
  const auto refused = Core::restore(test::swapping_config(), {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("what is stored does not move"), std::string::npos) << refused.error().to_string();
}

TEST(SpoiledState, BlocksThatSwappedRequestsLeftAreOfThePool) {
  const CoreConfig config = test::swapping_config();
  CoreDriver d = test::one_is_swapped();
  SwappedBlocks& swapped = *d.core->state_->swap.swapped_[0];
  swapped.left.groups_.resize(1);
  swapped.left.groups_[0].blocks.push_back(BlockId{config.kv.num_blocks});
  const auto refused = Core::restore(config, {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("blocks that are left are of the pool"), std::string::npos) << refused.error().to_string();
}

// Also those of who was put back since: its result may bring one more.
TEST(SpoiledState, TokensThatAPlanShowsDoNotMove) {
  const CoreConfig config = test::async_config();
  CoreDriver d(config);
  d.add(1, 8, 20);
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false).value());
  ASSERT_EQ(d.view(1).status, RequestStatus::preempted);
  auto restored = Core::restore(config, {}, d.core->checkpoint());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  const Request& request = *(*restored)->state_->table.find_any(RequestId{1});
  EXPECT_GT(request.num_in_flight, 0);
  EXPECT_GT(request.tokens.capacity(), request.tokens.size());
}

// Blocks that a step under way may write to still.
TEST(SpoiledState, BlocksThatAreFreedLaterAreOfThePool) {
  CoreConfig config = test::async_config(12);
  config.decisions = DecisionProfile::vllm_0_32;
  config.newer.defer_block_free = true;
  CoreDriver d(config);
  d.add(1, 8, 8);
  d.plan();
  d.plan();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 9.0});
  Core::State& s = *d.core->state_;
  ASSERT_EQ(s.kv.leaving_.size(), 1U);
  const std::vector<std::uint8_t> good = d.core->checkpoint();
  const auto again = Core::restore(config, {}, good);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_TRUE((*again)->checkpoint() == good);
  for (const std::uint32_t block : {0U, 12U}) {
    const BlockId before = std::exchange(s.kv.leaving_[0].blocks[0], BlockId{block});
    const auto refused = Core::restore(config, {}, d.core->checkpoint());
    ASSERT_FALSE(refused.has_value()) << block;
    EXPECT_NE(refused.error().to_string().find("blocks are of the pool"), std::string::npos) << refused.error().to_string();
    s.kv.leaving_[0].blocks[0] = before;
  }
  d.apply();
  d.apply();
  EXPECT_TRUE(d.core->all_blocks_free());
}

}  // namespace
}  // namespace quire
