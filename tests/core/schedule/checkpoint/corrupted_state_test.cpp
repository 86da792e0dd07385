// Checkpoints of an inconsistent state must be refused, with an error that names the broken rule. Each case changes one member before the
// checkpoint is written.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "core/kv/kv_coordinator.h"
#include "core/schedule/core_driver.h"
#include "core/schedule/moves/one_is_swapped.h"
#include "core/schedule/state.h"

namespace quire::test {
namespace {

constexpr std::int32_t kTooMany = (1 << 30) + 1;

struct Corruption {
  const char* rule;
  std::function<void(Core::State&, Request&)> corrupt;
};

TEST(CorruptedState, IsRefusedByTheBrokenRule) {
  const std::vector<Corruption> corruptions = {
      {"the prompt is part of the tokens", [](Core::State&, Request& r) { r.num_prompt_tokens = r.num_tokens() + 1; }},
      {"the prompt is part of the tokens", [](Core::State&, Request& r) { r.num_prompt_tokens = -1; }},
      {"the numbers of tokens are in range", [](Core::State&, Request& r) { r.num_computed_tokens = kTooMany; }},
      {"the numbers of tokens are in range", [](Core::State&, Request& r) { r.num_computed_tokens = -kTooMany; }},
      {"the numbers of tokens are in range", [](Core::State&, Request& r) { r.num_output_placeholders = kTooMany; }},
      {"the numbers of tokens are in range", [](Core::State&, Request& r) { r.num_output_placeholders = -kTooMany; }},
      {"the slot of a request is in the batch", [](Core::State&, Request& r) { r.slot = Slot{8}; }},
      {"a free slot is in the batch", [](Core::State& s, Request&) { s.slots.free_.back() = Slot{8}; }},
      {"a released slot is in the batch", [](Core::State& s, Request&) { s.slots.released_.push_back(Slot{8}); }},
      {"an ended request is unknown and is listed once", [](Core::State& s, Request& r) { s.ended.gone_.push_back(&r); }},
      {"the holders of a request are valid", [](Core::State&, Request& r) { r.holders = 4; }},
      {"the last step of a request was planned", [](Core::State& s, Request& r) { r.in_flight.last_step = s.plans.next_step(); }},
      {"the connector was queried only for planned steps",
       [](Core::State& s, Request& r) { r.load.last_early_query = s.plans.next_step(); }},
      {"a request records its index in a plan", [](Core::State&, Request& r) { r.in_flight.last_index = 1; }},
      {"the family of a request is known", [](Core::State&, Request& r) { r.family = 9; }},
      {"the numbers of open transfers of each request are correct", [](Core::State&, Request& r) { r.transfers.num_open_loads = 1; }},
      {"the numbers of open transfers of each request are correct", [](Core::State&, Request& r) { r.transfers.num_open_stores = 1; }},
      {"the number of computed tokens is not negative", [](Core::State&, Request& r) { r.num_computed_tokens = -1; }},
      {"computed tokens do not exceed the known tokens, placeholders and draft tokens",
       [](Core::State&, Request& r) { r.num_computed_tokens = r.num_tokens() + 1; }},
      {"without speculative decoding, the number of placeholders is not negative",
       [](Core::State&, Request& r) { r.num_output_placeholders = -1; }},
      {"only a request that waits for its blocks has received blocks", [](Core::State&, Request& r) { r.load.received = true; }},
      {"only a request that waits for its blocks has received blocks",
       [](Core::State&, Request& r) { r.load.failure = LoadFailure::partial; }},
      {"a request with a failed grammar waits for its grammar", [](Core::State&, Request& r) { r.grammar_failed = true; }},
      {"the numbers in flight match the outstanding plans", [](Core::State&, Request& r) { r.in_flight.num_tokens = 2; }},
      {"the numbers in flight match the outstanding plans", [](Core::State&, Request& r) { r.in_flight.num_tokens = 0; }},
      {"stale tokens are in flight", [](Core::State&, Request& r) { r.in_flight.num_stale_tokens = 2; }},
      {"stale tokens are in flight", [](Core::State&, Request& r) { r.in_flight.num_stale_tokens = -1; }},
      {"a request with structured output has a grammar", [](Core::State&, Request& r) { r.structured_output = true; }},
      {"blocks cover all computed tokens", [](Core::State&, Request& r) { r.blocks.groups_[0].blocks.pop_back(); }},
      {"a block that is not cached has no hash", [](Core::State&, Request& r) { r.blocks.groups_[0].num_cached_blocks = 1; }},
      {"the hits do not exceed the queries", [](Core::State& s, Request&) { s.kv.stats_.hits = s.kv.stats_.queries + 1; }},
      {"the hits do not exceed the queries", [](Core::State& s, Request&) { ++s.kv.stats_.preempted_hits; }},
      {"this must hold: new blocks are in the pool",
       [](Core::State& s, Request&) {
         const BlockId next{s.kv.pool().num_blocks()};
         s.kv.coordinator_->each([&](auto& manager, std::size_t) { manager.new_block_ids_.push_back(next); });
       }},
      {"the numbers of embeddings are in range", [](Core::State& s, Request&) { s.encoder.cache().num_free_ = -1; }},
      {"the numbers of embeddings are in range", [](Core::State& s, Request&) { s.encoder.cache().num_freeable_ = -1; }},
      {"the numbers of embeddings are in range",
       [](Core::State& s, Request&) { s.encoder.cache().num_free_ = (std::int64_t{1} << 48) + 1; }},
      {"the numbers of embeddings are in range",
       [](Core::State& s, Request&) { s.encoder.cache().num_freeable_ = (std::int64_t{1} << 48) + 1; }},
  };
  for (std::size_t i = 0; i < corruptions.size(); ++i) {
    CoreDriver d(sync_config());
    d.add(1, 8, 20);
    d.step();
    d.plan();
    ASSERT_TRUE(Core::restore(sync_config(), {}, d.core->checkpoint()).has_value());
    Core::State& s = *d.core->state_;
    corruptions[i].corrupt(s, *s.table.find_any(RequestId{1}));
    const auto restored = Core::restore(sync_config(), {}, d.core->checkpoint());
    ASSERT_FALSE(restored.has_value()) << i;
    EXPECT_EQ(restored.error().field, "checkpoint");
    EXPECT_NE(restored.error().to_string().find(corruptions[i].rule), std::string::npos) << i << ": " << restored.error().to_string();
  }
}

TEST(CorruptedState, IsRefusedWhenComputedTokensHaveNoBlock) {
  CoreDriver d(sync_config());
  d.add(1, 8, 20);
  ASSERT_TRUE(Core::restore(sync_config(), {}, d.core->checkpoint()).has_value());
  d.core->state_->table.find_any(RequestId{1})->num_computed_tokens = 1;
  const auto refused = Core::restore(sync_config(), {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("a request with computed tokens holds blocks"), std::string::npos)
      << refused.error().to_string();
}

// The largest allowed counts pass this rule; another rule may refuse them.
TEST(CorruptedState, AcceptsTheLargestCounts) {
  for (const std::int32_t count : {kTooMany - 1, 1 - kTooMany}) {
    CoreDriver d(sync_config());
    d.add(1, 8, 20);
    d.core->state_->table.find_any(RequestId{1})->num_computed_tokens = count;
    const auto restored = Core::restore(sync_config(), {}, d.core->checkpoint());
    if (!restored) EXPECT_EQ(restored.error().to_string().find("the numbers of tokens are in range"), std::string::npos);
  }
}

TEST(CorruptedState, AcceptsTheMostEmbeddings) {
  CoreDriver d(sync_config());
  EncoderCache& cache = d.core->state_->encoder.cache();
  cache.num_free_ = cache.num_freeable_ = std::int64_t{1} << 48;
  const auto restored = Core::restore(sync_config(), {}, d.core->checkpoint());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  EXPECT_EQ((*restored)->state_->encoder.cache().num_free_, std::int64_t{1} << 48);
}

TEST(CorruptedState, IsRefusedWhenAPlanHasOtherInputs) {
  CoreConfig config = sync_config();
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 16;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 8);
  const std::vector<MultimodalFeature> items = {{"image", PlaceholderRange(1, 2)}};
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.multimodal = items;
  d.add(request);
  ASSERT_EQ(d.plan().scheduled[0].encoder_inputs.size(), 1U);
  ASSERT_TRUE(Core::restore(config, {}, d.core->checkpoint()).has_value());
  d.core->state_->table.find_any(RequestId{1})->features.clear();
  const auto restored = Core::restore(config, {}, d.core->checkpoint());
  ASSERT_FALSE(restored.has_value());
  EXPECT_NE(restored.error().to_string().find("encoder inputs belong to the request"), std::string::npos) << restored.error().to_string();
}

// A request holds encoder outputs by its inputs, which have two sizes. The checkpoint keeps both.
TEST(CorruptedState, IsRefusedWhenHeldInputsAreNotTheRequests) {
  CoreConfig config = sync_config();
  config.decisions = DecisionProfile::vllm_0_32;
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 16;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 8), other = CoreDriver::prompt(2, 8);
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
  EXPECT_EQ(values(s.encoder.mismatched()), Ids{2});
  EXPECT_EQ(values(Core::restore(config, {}, d.core->checkpoint()).value()->state_->encoder.mismatched()), Ids{2});
  EXPECT_EQ(d.apply().retired, Ids{2});

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
  EXPECT_NE(refused.error().to_string().find("held encoder inputs belong to their request"), std::string::npos)
      << refused.error().to_string();
  cache.held_.at(RequestId{1}).table_.assign(8, 1);
  EXPECT_FALSE(Core::restore(config, {}, (*again)->checkpoint()).has_value()) << "a valid set has a free slot";
}

TEST(CorruptedState, IsRefusedWhenASwappedBlockIsNotInItsRequestsList) {
  const CoreConfig config = swapping_config();
  CoreDriver d = one_is_swapped();
  ASSERT_TRUE(Core::restore(config, {}, d.core->checkpoint()).has_value());
  SwappedBlocks& swapped = *d.core->state_->swap.swapped_[0];
  SwappedOutBlock& taken = swapped.blocks.back();
  std::vector<BlockId>& list = swapped.request->blocks.groups_[taken.group].blocks;
  const auto expect_refused = [&](const char* what) {
    const auto refused = Core::restore(config, {}, d.core->checkpoint());
    ASSERT_FALSE(refused.has_value()) << what;
    EXPECT_NE(refused.error().to_string().find("a swapped block has an index in the block list of its request"), std::string::npos)
        << refused.error().to_string();
  };
  const std::uint32_t index = std::exchange(taken.index, static_cast<std::uint32_t>(list.size()));
  expect_refused("the index is after the end of the list");
  taken.index = index;
  list[index] = BlockId{1};
  expect_refused("another block is there");
}

TEST(CorruptedState, IsRefusedWhenAStoredSwappedBlockMoves) {
  CoreDriver d = one_is_swapped();
  d.core->state_->swap.swapped_[0]->stage = SwappedBlocks::Stage::stored;
  const auto refused = Core::restore(swapping_config(), {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("stored blocks have no open transfers"), std::string::npos) << refused.error().to_string();
}

TEST(CorruptedState, IsRefusedWhenLeftBlocksAreOutsideThePool) {
  const CoreConfig config = swapping_config();
  CoreDriver d = one_is_swapped();
  SwappedBlocks& swapped = *d.core->state_->swap.swapped_[0];
  swapped.left.groups_.resize(1);
  swapped.left.groups_[0].blocks.push_back(BlockId{config.kv.num_blocks});
  const auto refused = Core::restore(config, {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().to_string().find("blocks that loads still fill are in the pool"), std::string::npos)
      << refused.error().to_string();
}

// These tokens may belong to a request that was preempted since: its result may add one more token.
TEST(CorruptedState, ReservesTokensForPlansInFlightWhenARequestIsPreempted) {
  const CoreConfig config = async_config();
  CoreDriver d(config);
  d.add(1, 8, 20);
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false).value());
  ASSERT_EQ(d.view(1).status, RequestStatus::preempted);
  auto restored = Core::restore(config, {}, d.core->checkpoint());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  const Request& request = *(*restored)->state_->table.find_any(RequestId{1});
  EXPECT_GT(request.in_flight.num_plans, 0);
  EXPECT_GT(request.tokens.capacity(), request.tokens.size());
}

// A step in flight may still write to these blocks.
TEST(CorruptedState, IsRefusedWhenLateFreedBlocksAreOutsideThePool) {
  CoreConfig config = async_config(12);
  config.decisions = DecisionProfile::vllm_0_32;
  config.newer.defer_block_free = true;
  CoreDriver d(config);
  d.add(1, 8, 8);
  d.plan();
  d.plan();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 9.0});
  Core::State& s = *d.core->state_;
  ASSERT_EQ(s.kv.deferred_frees_.size(), 1U);
  const std::vector<std::uint8_t> good = d.core->checkpoint();
  const auto again = Core::restore(config, {}, good);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_TRUE((*again)->checkpoint() == good);
  for (const std::uint32_t block : {0U, 12U}) {
    const BlockId before = std::exchange(s.kv.deferred_frees_[0].blocks[0], BlockId{block});
    const auto refused = Core::restore(config, {}, d.core->checkpoint());
    ASSERT_FALSE(refused.has_value()) << block;
    EXPECT_NE(refused.error().to_string().find("blocks that are freed later are in the pool"), std::string::npos)
        << refused.error().to_string();
    s.kv.deferred_frees_[0].blocks[0] = before;
  }
  d.apply();
  d.apply();
  EXPECT_TRUE(d.core->all_blocks_free());
}

}  // namespace
}  // namespace quire::test
