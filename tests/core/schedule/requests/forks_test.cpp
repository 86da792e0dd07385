// Tests what a child shares with its parent, and which request copies which block.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "core/schedule/requests/forking.h"
#include "quire/base/events.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(Forks, CopyTheTagsOfTheParentExceptTheJob) {
  CoreDriver d(sync_config());
  const Tokens tokens = CoreDriver::prompt(1, 9);
  NewRequest request = CoreDriver::request(1, tokens, 20);
  const RequestTags tags{.job = "job", .tool = "ls", .tenant = "a", .hints = {{"size", "small"}}};
  request.tags = &tags;
  d.add(request);
  d.step();
  EXPECT_EQ(*d.view(1).tags, tags);
  must_fork(d, 1, 2);
  EXPECT_EQ(*d.view(2).tags, (RequestTags{.tenant = "a", .hints = {{"size", "small"}}}));
}

TEST(Forks, GiveTheChildItsOwnNameAndSamplingParameters) {
  CoreDriver d(sync_config());
  const SamplingParams first, second;
  const Tokens tokens = CoreDriver::prompt(1, 9);
  NewRequest request = CoreDriver::request(1, tokens, 20);
  request.name = "parent";
  request.sampling = &first;
  d.add(request);
  d.step();
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .name = "child", .arrival_time = 2.0, .sampling = &second}).has_value());
  EXPECT_EQ(d.view(1).name, "parent");
  EXPECT_EQ(d.view(2).name, "child");
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.admitted[0].id, RequestId{2});
  EXPECT_EQ(plan.admitted[0].sampling, &second);
  d.apply();
}

TEST(Forks, ReuseAllComputedTokensOfTheParent) {
  CoreDriver d(sync_config());
  d.add(1, 9, 20);
  d.step();
  d.step();  // 11 tokens, 10 of them computed: two full blocks, and two tokens in the third
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, d.view(1).num_computed_tokens);
  EXPECT_EQ(d.blocks(2), d.blocks(1));
  EXPECT_EQ(d.core->counters().num_free_blocks, 31U - 3U) << "the fork allocates no block";
  const std::vector<BlockId> shared = d.blocks(1);

  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({1, 2}));
  EXPECT_EQ(d.scheduled(2), 1U);
  ASSERT_EQ(plan.copies.size(), 1U) << "the parent writes first and copies; the child writes last";
  EXPECT_EQ(plan.copies[0].id, RequestId{1});
  EXPECT_EQ(plan.copies[0].source, shared[2]);
  EXPECT_EQ(plan.copies[0].destination, d.blocks(1)[2]);
  ASSERT_EQ(plan.table_deltas.size(), 2U);
  EXPECT_EQ(plan.table_deltas[0].update, TableUpdate::replace_one);
  EXPECT_EQ(plan.table_deltas[0].index, 2U);
  EXPECT_EQ(plan.table_deltas[0].blocks[0], d.blocks(1)[2]);
  EXPECT_EQ(plan.table_deltas[1].update, TableUpdate::replace_all);
  EXPECT_EQ(d.blocks(2), shared);
  EXPECT_EQ(plan.admitted[0].num_prompt_tokens, 9U);
  EXPECT_EQ(plan.admitted[0].tokens.size(), 11U);
  const auto outcome = d.apply();
  EXPECT_EQ(outcome.first_admissions, Ids({2}));
  EXPECT_EQ(outcome.updates[1].num_cached_tokens, 10);
  EXPECT_TRUE(d.plan().copies.empty());
  d.apply();
  EXPECT_EQ(d.core->counters().num_forks, 1U);
  EXPECT_EQ(d.core->counters().num_copied_blocks, 1U);
}

// The fork happens during the prefill. The blocks that the child fills itself are hashed with the same embeddings.
TEST(Forks, UseTheEmbeddingsOfTheParentsPrompt) {
  CoreConfig config = sync_config();
  config.scheduler.long_prefill_token_threshold = 4;
  CoreDriver d(config);
  const Tokens zeros(13, 0);
  const std::vector<std::byte> rows(26, std::byte{7});
  NewRequest request = CoreDriver::request(1, zeros, 4);
  request.prompt_embeds = rows;
  d.add(request);
  d.step();
  must_fork(d, 1, 2);
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  for (int i = 0; i < 3; ++i) d.step();
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  request.id = RequestId{3};
  d.add(request);
  d.plan();
  EXPECT_EQ(d.view(3).num_computed_tokens, 12U + d.scheduled(3));
  d.apply();
}

TEST(Forks, CopyNoFullBlocks) {
  CoreDriver d(sync_config());
  d.add(1, 8, 20);
  d.step();
  for (std::uint64_t child = 2; child < 6; ++child) must_fork(d, 1, child);
  EXPECT_TRUE(d.plan().copies.empty());
  EXPECT_EQ(d.core->ref_count(d.blocks(1)[1]), 5U);
  d.apply();
}

TEST(Forks, CopyABlockForAllSharersExceptTheLast) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  d.step();
  for (std::uint64_t child = 2; child < 6; ++child) must_fork(d, 1, child);
  EXPECT_EQ(d.plan().copies.size(), 4U);
  d.apply();
}

// The parent has ended, and others may find the tokens that it wrote after the fork. The block loses its hash before the child overwrites
// it.
TEST(Forks, WriteInPlaceAndDropTheHashForTheLastSharer) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  for (int i = 0; i < 4; ++i) d.step();
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .num_tokens = 6}).has_value());
  const std::vector<BlockId> shared = d.blocks(2);
  ASSERT_EQ(shared.size(), 2U);
  EXPECT_TRUE(d.cached(shared[1]));
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  const StepPlan& plan = d.plan();
  EXPECT_TRUE(plan.copies.empty());
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 5U);
  EXPECT_EQ(d.blocks(2), shared);
  EXPECT_FALSE(d.cached(shared[1]));
  d.apply();
}

// The child does not get placeholders. Known tokens in flight count as computed, because they are written before the next plan runs.
TEST(Forks, ShareKnownTokensWhenAPlanIsInFlight) {
  CoreDriver d(async_config());
  d.add(1, 9, 20);
  d.plan();
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).tokens.size(), 9U);
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U) << "all tokens but the last, from which the child samples";
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({1, 2}));
  EXPECT_TRUE(plan.copies.empty()) << "both shared blocks are full";
  d.apply();
  must_fork(d, 1, 3);
  EXPECT_EQ(d.view(3).tokens.size(), 10U);
  EXPECT_EQ(d.view(3).num_computed_tokens, 9U);
  d.apply();
}

TEST(Forks, ShareTheComputedTokensOfAPrefill) {
  CoreConfig config = sync_config();
  config.scheduler.long_prefill_token_threshold = 6;
  CoreDriver d(config);
  d.add(1, 20, 4);
  d.step();
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, 6U);
  EXPECT_EQ(d.plan().copies.size(), 1U);
  d.apply();
  for (int i = 0; i < 12; ++i) d.step();
  EXPECT_FALSE(d.known(1) || d.known(2));
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Forks, ShareNothingWhenTheParentHasComputedNothing) {
  CoreDriver d(sync_config());
  d.add(1, 9, 4);
  must_fork(d, 1, 2);
  EXPECT_TRUE(d.blocks(2).empty());
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.step();
  EXPECT_EQ(d.outputs(1).size(), 1U);
}

TEST(Forks, AreReportedAsEvents) {
  EventLog events{EventKind::forked, EventKind::unshared};
  CoreDriver d(sync_config(), {.events = &events});
  d.add(1, 6, 20);
  d.step();
  must_fork(d, 1, 2);
  EXPECT_TRUE(*d.core->reset_prefix_cache(true));
  ASSERT_EQ(events.all.size(), 2U);
  EXPECT_EQ(events.all[0].what, EventKind::forked);
  EXPECT_EQ(events.all[0].owner, RequestId{1});
  EXPECT_EQ(events.all[0].beneficiary, RequestId{2});
  EXPECT_EQ(events.all[0].amount, 2U) << "number of blocks";
  EXPECT_EQ(events.all[1].what, EventKind::unshared);
  EXPECT_EQ(events.all[1].cause, EventCause::ended_by_host);
  EXPECT_EQ(events.all[1].owner, RequestId{2});
  EXPECT_EQ(events.all[1].amount, 2U);
}

// The child's token replaces the token that the parent has sampled. The requests diverge there and share the blocks before.
TEST(Forks, ContinueWithAGivenToken) {
  CoreDriver d(sync_config());
  d.add(1, 9, 20);
  d.step();
  d.step();  // 11 tokens, 10 of them computed
  const auto forked = fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .num_tokens = 10, .next_token = 77});
  ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
  Tokens tokens(d.view(1).tokens.begin(), d.view(1).tokens.end() - 1);
  tokens.push_back(77);
  EXPECT_EQ(Tokens(d.view(2).tokens.begin(), d.view(2).tokens.end()), tokens);
  EXPECT_EQ(d.view(2).num_computed_tokens, 10U);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(d.scheduled(2), 1U);
  EXPECT_EQ(plan.copies.size(), 1U);
  EXPECT_EQ(plan.admitted[0].tokens.back(), 77);
  d.apply();
  EXPECT_EQ(d.outputs(2).size(), 3U);
}

// The block that the given token fills has the hash that any request with these tokens computes.
TEST(Forks, CacheABlockThatAGivenTokenFills) {
  CoreDriver d(sync_config());
  d.add(1, 7, 20);
  d.step();
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .num_tokens = 7, .next_token = 77}).has_value());
  d.step();
  Tokens same(d.view(2).tokens.begin(), d.view(2).tokens.begin() + 8);
  same.push_back(5);
  d.add(CoreDriver::request(3, same, 4));
  EXPECT_EQ(d.plan().scheduled.back().num_computed_tokens, 8U);
  d.apply();
}

TEST(Forks, CountAGivenTokenAsAnOutput) {
  CoreDriver d(sync_config());
  d.add(1, 6, 10);
  d.step();
  d.step();
  const ForkRequest child{.id = RequestId{2}, .arrival_time = 2.0, .next_token = 77, .max_tokens = 3};
  const auto refused = fork(d, 1, child);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "max_tokens");
  EXPECT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .next_token = 77, .max_tokens = 4}).has_value());
  d.step();
  EXPECT_FALSE(d.known(2)) << "the child has its four outputs";
}

TEST(Forks, KeepContentCorrectInWindows) {
  for (const std::uint32_t window : {3U, 4U, 9U}) {
    CoreConfig config = small_config(64);
    SlidingWindowSpec spec;
    spec.block_size = config.block_size;
    spec.sliding_window = window;
    config.kv.groups.push_back({.layer_names = {}, .spec = spec, .layer_specs = {}});
    Harness h(config);
    h.worker.use_windows({0, window});
    h.add(1, CoreDriver::prompt(0, 13), 30);
    for (std::uint64_t child = 2; child < 12; ++child) {
      h.step();
      ASSERT_TRUE(h.fork(RequestId{child - 1}, {.id = RequestId{child}, .arrival_time = static_cast<double>(child)}, child).has_value());
    }
    EXPECT_GT(h.worker.num_copies, 0U);
    h.run_to_end();
  }
}

}  // namespace
}  // namespace quire::test
