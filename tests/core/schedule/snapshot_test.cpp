// Tests that a snapshot and the related queries report every field of a request, of the blocks, of the encoder cache and of the queues.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

using Blocks = std::vector<std::uint32_t>;

Blocks numbers(std::span<const BlockId> blocks) {
  Blocks result;
  std::ranges::transform(blocks, std::back_inserter(result), &BlockId::value);
  return result;
}

TEST(Snapshot, ReportsARequestAndItsBlocks) {
  CoreDriver d(sync_config(8));
  d.add(1, 5, 4);
  d.step();
  const CoreSnapshot snapshot = d.snapshot();
  ASSERT_EQ(snapshot.requests.size(), 1U);
  const CoreSnapshot::Request& request = snapshot.requests[0];
  EXPECT_EQ(request.id, RequestId{1});
  EXPECT_EQ(request.status, RequestStatus::running);
  EXPECT_EQ(request.num_tokens, 6U);
  EXPECT_EQ(request.num_computed_tokens, 5U);
  EXPECT_EQ(request.num_preemptions, 0U);
  EXPECT_EQ(request.num_output_placeholders, 0);
  EXPECT_EQ(request.num_cached_tokens, 0);
  EXPECT_FALSE(request.is_prefill_chunk);
  EXPECT_EQ(request.tokens, (Tokens{1000, 1001, 1002, 1003, 1004, kSomeToken}));
  ASSERT_EQ(request.blocks.size(), 1U);
  EXPECT_EQ(numbers(request.blocks[0]), (Blocks{1, 2}));
  ASSERT_EQ(request.num_cached_blocks.size(), 1U);
  EXPECT_EQ(request.num_cached_blocks[0], 1U);
  EXPECT_EQ(request.block_hashes.size(), 32U);
  EXPECT_EQ(values(snapshot.running), Ids{1});
  EXPECT_EQ(numbers(snapshot.free_blocks), (Blocks{3, 4, 5, 6, 7}));
  EXPECT_EQ(numbers(snapshot.cached_blocks), Blocks{1});
  ASSERT_EQ(snapshot.blocks.size(), 8U);
  for (std::uint32_t block = 0; block < 8; ++block) {
    EXPECT_EQ(snapshot.blocks[block].ref_count, block == 1 || block == 2 ? 1U : 0U) << block;
    EXPECT_EQ(snapshot.blocks[block].ref_count, d.core->ref_count(BlockId{block}));
    EXPECT_EQ(snapshot.blocks[block].key, d.core->block_key(BlockId{block}));
  }
  std::vector<std::uint8_t> key = request.block_hashes;
  key.insert(key.end(), {0, 0, 0, 0});
  EXPECT_EQ(snapshot.blocks[1].key, key) << "a key is the hash followed by the group in four bytes";
  EXPECT_TRUE(snapshot.blocks[2].key.empty());
}

TEST(Snapshot, IncludesTheGroupInKeys) {
  CoreConfig config = sync_config(16);
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 8;
  config.kv.groups.push_back({.layer_names = {"window"}, .spec = window, .layer_specs = {}});
  CoreDriver d(config);
  d.add(1, 5, 4);
  d.step();
  const auto blocks = d.core->blocks(RequestId{1}, 1);
  ASSERT_EQ(blocks.size(), 2U);
  const std::vector<std::uint8_t> key = d.core->block_key(blocks[0]);
  EXPECT_EQ((std::vector<std::uint8_t>{key.end() - 4, key.end()}), (std::vector<std::uint8_t>{0, 0, 0, 1}));
  EXPECT_TRUE(d.core->blocks(RequestId{9}, 0).empty()) << "an unknown request has no blocks";
  EXPECT_FALSE(d.core->view(RequestId{9}).has_value());
}

TEST(Snapshot, ReportsFinishedRequestsAndTheOrderOfFreedBlocks) {
  CoreDriver d(sync_config(8));
  d.add(1, 5, 4);
  d.step();
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::retired);
  EXPECT_EQ(values(d.snapshot().finished), Ids{1});
  EXPECT_TRUE(d.core->has_finished_requests());
  EXPECT_EQ(numbers(d.snapshot().free_blocks), (Blocks{3, 4, 5, 6, 7, 2, 1}));
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_EQ(values(d.plan().finished), Ids{1});
  EXPECT_FALSE(d.core->has_finished_requests());
  EXPECT_TRUE(d.snapshot().finished.empty());
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::unknown);
}

TEST(Snapshot, ReportsQueuesInTheirOrder) {
  ScriptedGrammar grammar;
  CoreDriver d(sync_config(), {.grammar = &grammar});
  d.add(1, 4, 4);
  d.step();
  d.core->set_pause_state(PauseState::paused_new);
  EXPECT_EQ(d.core->pause_state(), PauseState::paused_new);
  d.add(3, 4, 4);
  d.add(2, 4, 4);
  const Tokens prompt = CoreDriver::prompt(4, 4);
  NewRequest structured = CoreDriver::request(4, prompt, 4);
  structured.structured_output = true;
  d.add(structured);
  std::vector<RequestId> running(7), waiting(7), skipped(7);
  d.core->queues(running, waiting, skipped);
  EXPECT_EQ(values(running), Ids{1});
  EXPECT_EQ(values(waiting), (Ids{3, 2}));
  EXPECT_EQ(values(skipped), Ids{4}) << "its grammar is not ready";
  EXPECT_EQ(d.snapshot().skipped_waiting, skipped);
  EXPECT_EQ(d.core->counters().num_waiting, 3U);
  EXPECT_TRUE(d.core->has_work());
}

CoreConfig encoder_config(std::uint32_t cache_size) {
  CoreConfig config = sync_config();
  config.encoder.max_encoder_tokens = 16;
  config.encoder.encoder_cache_size = cache_size;
  config.scheduler.max_num_batched_tokens = 4;
  return config;
}

NewRequest with_item(std::uint64_t id, const Tokens& prompt, std::span<const MultimodalFeature> items) {
  NewRequest request = CoreDriver::request(id, prompt, 4);
  request.multimodal = items;
  return request;
}

TEST(Snapshot, ReportsEncoderOutputsAndTheirHolders) {
  CoreDriver d(encoder_config(16));
  const Tokens prompt = CoreDriver::prompt(1, 10);
  const std::vector<MultimodalFeature> items{{"image", PlaceholderRange(2, 4)}, {"sound", PlaceholderRange(7, 2)}};
  d.add(with_item(1, prompt, items));
  d.step();
  CoreSnapshot snapshot = d.snapshot();
  ASSERT_EQ(snapshot.encoder_cached.size(), 1U);
  EXPECT_EQ(snapshot.encoder_cached[0].identifier, "image");
  EXPECT_EQ(values(snapshot.encoder_cached[0].holders), Ids{1});
  EXPECT_TRUE(snapshot.encoder_freeable.empty());
  EXPECT_EQ(snapshot.encoder_free_slots, 12U);
  EXPECT_EQ(snapshot.encoder_freeable_slots, 12U);
  d.step();
  d.step();
  snapshot = d.snapshot();
  ASSERT_EQ(snapshot.encoder_freeable.size(), 2U) << "computed tokens are in the KV cache";
  EXPECT_EQ(snapshot.encoder_freeable[0].identifier, "image");
  EXPECT_EQ(snapshot.encoder_freeable[0].num_embeds, 4U);
  EXPECT_EQ(snapshot.encoder_freeable[1].identifier, "sound");
  EXPECT_EQ(snapshot.encoder_freeable[1].num_embeds, 2U);
  EXPECT_EQ(snapshot.encoder_cached.size(), 2U);
  EXPECT_EQ(snapshot.encoder_free_slots, 10U);
  EXPECT_EQ(snapshot.encoder_freeable_slots, 16U);
  d.core->reset_encoder_cache();
  snapshot = d.snapshot();
  EXPECT_TRUE(snapshot.encoder_cached.empty());
  EXPECT_EQ(snapshot.encoder_free_slots, 16U);
}

TEST(Snapshot, ReportsOutputsThatNoRequestRefersTo) {
  CoreDriver d(encoder_config(16));
  const Tokens prompt = CoreDriver::prompt(1, 4);
  const std::vector<MultimodalFeature> items{{"image", PlaceholderRange(0, 4)}};
  d.add(with_item(1, prompt, items));
  d.step({{1, {kEos}}});
  const CoreSnapshot snapshot = d.snapshot();
  EXPECT_TRUE(snapshot.requests.empty());
  ASSERT_EQ(snapshot.encoder_cached.size(), 1U);
  EXPECT_EQ(snapshot.encoder_cached[0].identifier, "image");
  EXPECT_TRUE(snapshot.encoder_freed.empty()) << "the output may be needed again";
}

TEST(Snapshot, ReportsFreedOutputsOfAnEncoder) {
  CoreConfig config = encoder_config(16);
  config.encoder.is_encoder_decoder = true;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 4);
  const std::vector<MultimodalFeature> items{{"sound", PlaceholderRange(0, 8)}};
  d.add(with_item(1, prompt, items));
  d.plan();
  EXPECT_EQ(d.snapshot().encoder_to_report, std::vector<std::string>{"sound"}) << "the output lives for one step";
  EXPECT_EQ(d.snapshot().encoder_cached.size(), 0U);
  d.apply();
  const StepPlan& second = d.plan();
  EXPECT_EQ(std::vector<std::string>(second.freed_encoder_outputs.begin(), second.freed_encoder_outputs.end()),
            std::vector<std::string>{"sound"});
  EXPECT_TRUE(d.snapshot().encoder_to_report.empty());
  d.apply();
}

TEST(Snapshot, ReportsResidencyOfSampledBlocks) {
  CoreConfig config = sync_config(8);
  config.report.kv_metrics_sample = 1.0;
  CoreDriver d(config);
  d.add(1, 5, 1);
  d.step();
  const std::vector<CoreSnapshot::Residency> lives = d.snapshot().residency;
  ASSERT_EQ(lives.size(), 2U);
  const CoreSnapshot::Residency& life = lives[0];
  EXPECT_EQ(life.block, BlockId{1});
  EXPECT_EQ(life.birth, 1'000'000'000);
  EXPECT_EQ(life.last_access, 1'000'000'000);
  EXPECT_TRUE(life.accesses.empty());
  const Tokens prompt = CoreDriver::prompt(1, 5);
  d.add(CoreDriver::request(2, prompt, 4));
  d.step();
  EXPECT_EQ(d.snapshot().residency[0].accesses, std::vector<std::int64_t>{3'000'000'000}) << "request 2 hits the first block";
  EXPECT_EQ(d.snapshot().residency[0].last_access, 3'000'000'000);
}

TEST(PlanContents, ListFreedEncoderOutputs) {
  CoreDriver d(encoder_config(4));
  const Tokens prompt = CoreDriver::prompt(1, 4);
  const std::vector<MultimodalFeature> image{{"image", PlaceholderRange(0, 4)}};
  const std::vector<MultimodalFeature> sound{{"sound", PlaceholderRange(0, 4)}};
  d.add(with_item(1, prompt, image));
  const StepPlan& first = d.plan();
  EXPECT_TRUE(first.freed_encoder_outputs.empty());
  ASSERT_EQ(first.scheduled[0].encoder_inputs.size(), 1U);
  EXPECT_EQ(first.scheduled[0].encoder_inputs[0], 0U);
  d.apply({{1, {kEos}}});
  const Tokens other = CoreDriver::prompt(2, 4);
  d.add(with_item(2, other, sound));
  const StepPlan& second = d.plan();
  ASSERT_EQ(second.freed_encoder_outputs.size(), 1U);
  EXPECT_EQ(second.freed_encoder_outputs[0], "image");
  d.apply();
  EXPECT_TRUE(d.plan().freed_encoder_outputs.empty()) << "reported only once";
  d.apply();
}

TEST(PlanContents, ZeroNewBlocksOfFullAttentionWhenLayersKeepStates) {
  CoreConfig config = sync_config();
  config.prefix_cache.enable_prefix_caching = false;
  MambaSpec mamba;
  mamba.block_size = 100;
  config.kv.groups.push_back({.layer_names = {"state"}, .spec = mamba, .layer_specs = {}});
  CoreDriver d(config);
  d.add(1, 4, 6);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(numbers(plan.blocks_to_zero), Blocks{1});
  EXPECT_EQ(numbers(d.core->blocks(RequestId{1}, 1)), Blocks{2}) << "the block of the state is not zeroed";
  d.apply();
  EXPECT_EQ(numbers(d.plan().blocks_to_zero), Blocks{3});
  d.apply();
  EXPECT_TRUE(d.plan().blocks_to_zero.empty());
  d.apply();
}

TEST(PlanContents, SendSampledTokensToTheFirstStageOfAPipeline) {
  CoreConfig config = sync_config();
  config.parallel.pipeline_parallel = true;
  CoreDriver d(config);
  d.add(1, 5, 8);
  const StepPlan& first = d.plan();
  EXPECT_TRUE(first.scheduled[0].new_tokens.empty());
  EXPECT_FALSE(first.scheduled[0].send_all_tokens);
  EXPECT_EQ(first.scheduled[0].num_output_tokens, 0);
  d.apply({{1, {41}}});
  const StepPlan& second = d.plan();
  EXPECT_EQ(Tokens(second.scheduled[0].new_tokens.begin(), second.scheduled[0].new_tokens.end()), Tokens{41});
  EXPECT_EQ(second.scheduled[0].kind, ScheduledKind::running);
  EXPECT_FALSE(second.scheduled[0].send_all_tokens) << "the request was in the previous plan";
  EXPECT_EQ(second.scheduled[0].num_output_tokens, 1);
  d.apply({{1, {42}}});
  ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
  const StepPlan& third = d.plan();
  EXPECT_EQ(third.scheduled[0].kind, ScheduledKind::resumed);
  EXPECT_TRUE(third.scheduled[0].send_all_tokens);
  EXPECT_EQ(third.scheduled[0].num_tokens, 7U);
  EXPECT_EQ(Tokens(third.scheduled[0].new_tokens.begin(), third.scheduled[0].new_tokens.end()),
            (Tokens{1000, 1001, 1002, 1003, 1004, 41, 42}));
  ASSERT_EQ(third.admitted.size(), 1U);
  EXPECT_EQ(third.admitted[0].num_prompt_tokens, 5U);
  EXPECT_EQ(third.admitted[0].tokens.size(), 7U);
  d.apply();
}

TEST(PlanContents, ContainNothingTwice) {
  CoreDriver d(sync_config());
  d.add(1, 5, 1);
  EXPECT_EQ(d.plan().admitted.size(), 1U);
  d.apply();
  EXPECT_EQ(values(d.plan().finished), Ids{1});
  d.apply();
  for (int step = 0; step < 4; ++step) {
    const StepPlan& plan = d.plan();
    EXPECT_TRUE(plan.finished.empty() && plan.released.empty() && plan.admitted.empty() && plan.preempted.empty()) << step;
    EXPECT_TRUE(plan.scheduled.empty() && plan.table_deltas.empty()) << step;
    d.apply();
  }
}

TEST(PlanContents, UpdateBlockTablesWhenBlocksChange) {
  CoreDriver d(sync_config());
  d.add(1, 5, 8);
  const StepPlan& first = d.plan();
  ASSERT_EQ(first.table_deltas.size(), 1U);
  EXPECT_EQ(first.table_deltas[0].update, TableUpdate::replace_all);
  EXPECT_EQ(numbers(first.table_deltas[0].blocks), (Blocks{1, 2}));
  EXPECT_EQ(first.table_deltas[0].id, RequestId{1});
  EXPECT_EQ(first.table_deltas[0].slot, first.admitted[0].slot);
  d.apply();
  for (int token = 6; token <= 8; ++token) {
    EXPECT_TRUE(d.plan().table_deltas.empty()) << token;
    d.apply();
  }
  const StepPlan& fifth = d.plan();
  ASSERT_EQ(fifth.table_deltas.size(), 1U);
  EXPECT_EQ(fifth.table_deltas[0].update, TableUpdate::append);
  EXPECT_EQ(fifth.table_deltas[0].group, 0U);
  EXPECT_EQ(numbers(fifth.table_deltas[0].blocks), Blocks{3});
  d.apply();
}

}  // namespace
}  // namespace quire::test
