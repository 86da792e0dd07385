// Tests what the seams decide in a plan: lookups and loads of a connector, and encoder inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

using Log = std::vector<std::string>;

TEST(ConnectorLookup, Trap24SkipsARequestWhoseMatchIsUnknown) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 8, 4);
  d.add(2, 8, 4);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({2}));
  EXPECT_EQ(connector.take_log()[0], "match 1 local=0");
  d.apply();
  EXPECT_EQ(values(d.snapshot().skipped_waiting), Ids({1}));
}

TEST(ConnectorLookup, RunsOnlyTheOtherTokensAfterASyncMatch) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 4, .load_async = false};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 4);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 4U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 6U);
  EXPECT_EQ(connector.take_log(), Log({"match 1 local=0", "allocated 1 blocks=[1 2 3] external=4", "planned 6"}));
  EXPECT_EQ(d.view(1).num_external_computed_tokens, 4);
  EXPECT_EQ(d.view(1).num_cached_tokens, 4);
  d.apply();
}

TEST(ConnectorLookup, Trap26RecordsExternalTokensEvenIfTheRequestIsNotAdmitted) {
  ScriptedConnector connector;
  connector.matches[RequestId{2}] = {.num_tokens = 4, .load_async = false};
  CoreDriver d(sync_config(7), {.connector = &connector});
  d.add(1, 15, 4);
  d.step();
  d.add(2, 20, 1);
  d.step();
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting);
  EXPECT_EQ(d.view(2).num_external_computed_tokens, 4);
}

TEST(ConnectorLoad, HoldsBlocksWhileTheyLoadAndCachesThemAfterwards) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 8, 4);
  EXPECT_TRUE(d.plan().scheduled.empty());
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
  EXPECT_EQ(d.view(1).num_computed_tokens, 8U);
  const std::vector<BlockId> blocks = d.blocks(1);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_FALSE(d.cached(blocks[0]));
  const RequestId received[] = {RequestId{1}};
  d.apply({}, {.has_connector_output = true, .finished_receiving = received});
  (void)connector.take_log();
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 7U) << "a token must run to sample from";
  EXPECT_EQ(plan.scheduled[0].num_tokens, 1U);
  EXPECT_EQ(plan.scheduled[0].kind, ScheduledKind::fresh);
  EXPECT_TRUE(d.cached(blocks[0]));
  EXPECT_EQ(connector.take_log()[0], "allocated 1 blocks=[1 2] external=0") << "the connector is notified again but not queried again";
  d.apply();
}

TEST(ConnectorLoad, ResumesAPreemptedRequestAfterItsLoad) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 8, 8);
  d.step();
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false).value());
  connector.matches[RequestId{1}] = {.num_tokens = 4, .load_async = true};
  d.plan();
  const RequestId received[] = {RequestId{1}};
  d.apply({}, {.has_connector_output = true, .finished_receiving = received});
  EXPECT_EQ(d.plan().scheduled[0].kind, ScheduledKind::resumed);
  d.apply();
}

TEST(ConnectorReset, CountsOnlyResetsThatTheConnectorAccepts) {
  ScriptedConnector connector;
  CoreConfig config = sync_config();
  config.report.log_stats = true;
  CoreDriver d(config, {.connector = &connector});
  connector.resets = false;
  EXPECT_FALSE(d.core->reset_connector_cache());
  EXPECT_FALSE(d.core->reset_prefix_cache(false, true).value());
  EXPECT_FALSE(d.core->make_stats()->connector_prefix_cache.value().reset);
  connector.resets = true;
  EXPECT_TRUE(d.core->reset_connector_cache());
  EXPECT_TRUE(d.core->make_stats()->connector_prefix_cache.value().reset);
  EXPECT_FALSE(d.core->make_stats()->connector_prefix_cache.value().reset) << "reported only once";
}

TEST(ConnectorLoad, Trap24KeepsAPromotedRequestThatDoesNotFitInFrontWithItsBlocks) {
  ScriptedConnector connector;
  connector.matches[RequestId{2}] = {.num_tokens = 4, .load_async = true};
  CoreConfig config = sync_config(6);
  config.scheduler.reserve_full_isl = false;
  CoreDriver d(config, {.connector = &connector});
  d.add(2, 8, 4);
  d.plan();
  d.add(1, 15, 4);
  const RequestId received[] = {RequestId{2}};
  d.apply();
  d.plan();  // request 1 takes the other blocks
  d.apply({}, {.has_connector_output = true, .finished_receiving = received});
  d.step();
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting);
  EXPECT_EQ(d.blocks(2).size(), 1U);
  EXPECT_EQ(values(d.snapshot().skipped_waiting), Ids({2}));
}

CoreConfig encoder_config() {
  CoreConfig config = sync_config(64);
  config.encoder.max_encoder_tokens = 8;
  config.encoder.encoder_cache_size = 8;
  return config;
}

NewRequest with_items(std::uint64_t id, const Tokens& prompt, const std::vector<MultimodalFeature>& items) {
  NewRequest request = CoreDriver::request(id, prompt, 4);
  request.multimodal = items;
  return request;
}

std::vector<std::uint32_t> inputs_of(const ScheduledRequest& s) {
  return {s.encoder_inputs.begin(), s.encoder_inputs.end()};
}

TEST(EncoderInputs, CutAChunkBeforeAnItemThatExceedsTheBudget) {
  CoreDriver d(encoder_config());
  const Tokens prompt = CoreDriver::prompt(1, 20);
  const std::vector<MultimodalFeature> items{{"a", PlaceholderRange(2, 6U)}, {"b", PlaceholderRange(10, 4U)}};
  d.add(with_items(1, prompt, items));
  const StepPlan& first = d.plan();
  EXPECT_EQ(inputs_of(first.scheduled[0]), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(first.scheduled[0].num_tokens, 10U) << "the chunk ends at the second item: 2 embeddings of the budget are left";
  d.apply();
  const StepPlan& second = d.plan();
  EXPECT_EQ(inputs_of(second.scheduled[0]), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(second.scheduled[0].num_tokens, 10U);
  d.apply();
  EXPECT_EQ(d.snapshot().encoder_freeable.size(), 1U) << "the second output has evicted the first";
}

TEST(EncoderInputs, ComputeEqualItemsOnce) {
  CoreDriver d(encoder_config());
  const Tokens prompt = CoreDriver::prompt(1, 12);
  const Tokens other = CoreDriver::prompt(2, 12);
  d.add(with_items(1, prompt, {{"a", PlaceholderRange(0, 4U)}, {"a", PlaceholderRange(6, 4U)}}));
  d.add(with_items(2, other, {{"a", PlaceholderRange(2, 4U)}}));
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 2U);
  EXPECT_EQ(inputs_of(plan.scheduled[0]), (std::vector<std::uint32_t>{0}));
  EXPECT_TRUE(inputs_of(plan.scheduled[1]).empty());
  d.apply();
}

TEST(EncoderInputs, DoNotSplitItemsWhenChunkingIsDisabled) {
  CoreConfig config = encoder_config();
  config.encoder.disable_chunked_mm_input = true;
  config.scheduler.max_num_batched_tokens = 8;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 12);
  d.add(with_items(1, prompt, {{"a", PlaceholderRange(4, 6U)}}));
  EXPECT_EQ(d.plan().scheduled[0].num_tokens, 4U);
  d.apply();
  EXPECT_EQ(d.plan().scheduled[0].num_tokens, 8U);
  d.apply();
}

// vLLM's rule would split the first item in the first step, because the item begins with the chunk.
TEST(EncoderInputs, DelayAnUncutItemUntilAStepHasRoomForAllOfIt) {
  CoreConfig config = encoder_config();
  config.encoder.uncut_items = true;
  config.scheduler.max_num_batched_tokens = 8;
  CoreDriver d(config);
  const Tokens first = CoreDriver::prompt(1, 5), second = CoreDriver::prompt(2, 12);
  d.add(with_items(1, first, {}));
  d.add(with_items(2, second, {{"a", PlaceholderRange(0, 6U)}, {"b", PlaceholderRange(7, 4U)}}));
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1})) << "three tokens are left";
  d.apply();
  const StepPlan& whole = d.plan();
  ASSERT_EQ(whole.scheduled.size(), 2U);
  EXPECT_EQ(whole.scheduled[1].num_tokens, 7U) << "all of the first item and the tokens before the second";
  d.apply();
  EXPECT_EQ(d.plan().scheduled[1].num_tokens, 5U);
  d.apply();
}

TEST(EncoderInputs, ComputeTheRestOfAnUncutItemTogetherAfterAPrefixHit) {
  CoreConfig config = encoder_config();
  config.encoder.uncut_items = true;
  config.prefix_cache.enable_prefix_caching = true;
  config.scheduler.max_num_batched_tokens = 12;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 12);
  const std::vector<MultimodalFeature> items{{"a", PlaceholderRange(2, 8U)}};
  d.add(with_items(1, prompt, items));
  for (int i = 0; i < 4; ++i) d.step();
  Tokens second = prompt;
  second[10] = 901;
  const Tokens other = CoreDriver::prompt(3, 11);
  d.add(with_items(3, other, {}));
  d.add(with_items(2, second, items));
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({3})) << "the budget has one token left and the item needs two";
  d.apply();
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 2U);
  EXPECT_EQ(plan.scheduled[1].num_computed_tokens, 8U);
  EXPECT_EQ(plan.scheduled[1].num_tokens, 4U);
  d.apply();
}

TEST(EncoderInputs, Trap35ReleaseTheReferencesOfARequestThatIsNotAdmitted) {
  CoreConfig config = encoder_config();
  config.kv.num_blocks = 7;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 12);
  const std::vector<MultimodalFeature> items{{"a", PlaceholderRange(0, 4U)}};
  d.add(with_items(1, prompt, items));
  d.step();
  const Tokens other = CoreDriver::prompt(2, 20);
  d.add(with_items(2, other, items));
  d.step();
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting);
  const CoreSnapshot snapshot = d.snapshot();
  ASSERT_EQ(snapshot.encoder_cached.size(), 1U);
  EXPECT_TRUE(snapshot.encoder_cached[0].holders.empty());
}

}  // namespace
}  // namespace quire::test
