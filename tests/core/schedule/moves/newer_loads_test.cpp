// Tests each rule for connectors that differs between vLLM 0.32.0 and 0.19.0, in its smallest case.
#include <algorithm>

#include "core/connect/grouped_config.h"
#include "core/schedule/core_driver.h"
#include "quire/seam_record.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

using RequestIds = std::vector<RequestId>;

constexpr auto kOlder = DecisionProfile::vllm_0_19, kNewer = DecisionProfile::vllm_0_32;

CoreConfig config_of(DecisionProfile profile, CoreConfig config = sync_config()) {
  config.decisions = profile;
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  return config;
}

StepResult reported(const std::vector<BlockId>& invalid, const RequestIds& received = {}) {
  return {.step = {}, .has_connector_output = true, .finished_receiving = received, .invalid_blocks = invalid};
}

Ids blocks_of(const CoreDriver& d, std::uint64_t id, std::uint32_t group) {
  Ids ids;
  for (const BlockId block : d.core->blocks(RequestId{id}, group)) ids.push_back(block.value);
  return ids;
}

// A grammar backend whose grammars cannot be compiled.
class NoGrammar final : public Grammar {
 public:
  bool ready(RequestId /*id*/) override { return false; }
  bool failed(RequestId /*id*/) override { return true; }
  bool should_advance(const RequestView& /*request*/) override { return false; }
  bool accept(RequestId /*id*/, std::span<const TokenId> /*tokens*/) override { return false; }
  std::uint32_t count_valid(RequestId /*id*/, std::span<const TokenId> /*drafts*/) override { return 0; }
};

TEST(NewerLoads, EndRequestsWithInvalidGrammarsInQueueOrderBeforeFailedLoads) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
  NoGrammar grammar;
  CoreConfig config = config_of(kNewer);
  config.kv_load_failure = KvLoadFailurePolicy::fail;
  CoreDriver d(config, {.connector = &connector, .grammar = &grammar});
  d.add(1, 10, 4);
  for (const std::uint64_t id : {3U, 2U}) {
    const Tokens prompt = CoreDriver::prompt(id, 10);
    NewRequest request = CoreDriver::request(id, prompt, 4);
    request.structured_output = true;
    d.add(request);
  }
  d.plan();
  connector.log.clear();
  const Outcome outcome = d.apply({}, reported({d.blocks(1).at(1)}));
  Ids ended;
  for (const Update& update : outcome.updates) {
    EXPECT_EQ(update.status, RequestStatus::finished_error);
    ended.push_back(update.id);
  }
  EXPECT_EQ(ended, (Ids{3, 2, 1}));
  ASSERT_EQ(connector.log.size(), 5U);
  EXPECT_EQ(connector.log[0], "finished 3 status=10 blocks=[]");
  EXPECT_EQ(connector.log[1], "finished 2 status=10 blocks=[]");
  EXPECT_EQ(connector.log[2], "order_failed 0 of 1");
  EXPECT_EQ(connector.log[3], "finished 1 status=10 blocks=[1]") << "the blocks before the corrupted block";
}

TEST(NewerLoads, RecordAndReplayAnInvalidGrammar) {
  NoGrammar grammar;
  const auto run = [](const CoreSeams& seams) {
    CoreDriver d(config_of(kNewer), seams);
    const Tokens prompt = CoreDriver::prompt(2, 10);
    NewRequest request = CoreDriver::request(2, prompt, 4);
    request.structured_output = true;
    d.add(request);
    d.plan();
    std::vector<RequestStatus> ended;
    for (const Update& update : d.apply({}, {}).updates) ended.push_back(update.status);
    return ended;
  };
  SeamRecorder recorder({.grammar = &grammar});
  EXPECT_EQ(run(recorder.seams()), std::vector<RequestStatus>{RequestStatus::finished_error});
  const SeamRecord record = recorder.take();
  EXPECT_EQ(std::ranges::count(record.answers, SeamCall::grammar_failed, &SeamAnswer::call), 1);
  SeamPlayer player(decode_seam_record(encode(record)).value());
  EXPECT_EQ(run(player.seams()), std::vector<RequestStatus>{RequestStatus::finished_error});
  EXPECT_TRUE(player.status().has_value());
  EXPECT_EQ(player.num_left(), 0U);
}

TEST(NewerLoads, BeginAnAsynchronousLoadOnlyWhenRunningPromptsKeepTheirBlocks) {
  for (const auto profile : {kOlder, kNewer}) {
    ScriptedConnector connector;
    connector.matches[RequestId{2}] = {.num_tokens = 16, .load_async = true};
    CoreConfig config = config_of(profile, sync_config(12));
    config.scheduler.long_prefill_token_threshold = 8;
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 32, 1);  // two blocks in this step and six later
    d.add(2, 18, 4);
    d.step();
    EXPECT_EQ(d.view(2).status, profile == kOlder ? RequestStatus::waiting_for_remote_kv : RequestStatus::waiting)
        << "nine blocks are free";
    for (int i = 0; i < 3; ++i) d.step();
    d.step();
    EXPECT_EQ(d.view(2).status, RequestStatus::waiting_for_remote_kv) << "request 1 has finished";
  }
}

// Request 1 needs eight blocks. It had two before the reset and has none now.
TEST(NewerLoads, ReserveNoBlocksForAPreemptedRequest) {
  ScriptedConnector connector;
  connector.matches[RequestId{2}] = {.num_tokens = 16, .load_async = true};
  CoreConfig config = config_of(kNewer, priority_config(11));
  config.scheduler.long_prefill_token_threshold = 8;
  config.scheduler.reserve_full_isl = false;
  CoreDriver d(config, {.connector = &connector});
  d.add_with_priority(1, 32, 5, 1.0, 1);
  d.step();
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false).value());
  d.add_with_priority(2, 18, 0, 2.0);
  d.step();
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting_for_remote_kv);
}

TEST(NewerLoads, ReserveBlocksForAStepWithDraftTokens) {
  // With four draft tokens a step has five tokens and takes two blocks.
  for (const auto& [num_drafts, num_blocks, begins] :
       {std::tuple(3U, 9U, false), std::tuple(3U, 10U, true), std::tuple(4U, 10U, false), std::tuple(4U, 11U, true)}) {
    ScriptedConnector connector;
    connector.matches[RequestId{2}] = {.num_tokens = 16, .load_async = true};
    CoreConfig config = config_of(kNewer, sync_config(num_blocks));
    config.speculation.num_spec_tokens = num_drafts;
    config.scheduler.reserve_full_isl = false;
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 12, 8);
    d.step();  // its prompt is computed; the next step takes a fourth block, and the load needs four
    d.add(2, 18, 4);
    d.step();
    EXPECT_EQ(d.view(2).status, begins ? RequestStatus::waiting_for_remote_kv : RequestStatus::waiting) << num_drafts;
  }
}

TEST(NewerLoads, LoadNothingForARequestThatSkipsThePrefixCache) {
  for (const auto profile : {kOlder, kNewer}) {
    ScriptedConnector connector;
    connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
    CoreDriver d(config_of(profile), {.connector = &connector});
    const Tokens prompt = CoreDriver::prompt(1, 10);
    NewRequest request = CoreDriver::request(1, prompt, 4);
    request.skip_reading_prefix_cache = true;
    d.add(request);
    d.plan();
    EXPECT_EQ(d.scheduled(1), profile == kOlder ? 2U : 10U);
    EXPECT_EQ(connector.log.at(0), "match 1 local=0") << "the core queries the connector anyway";
    d.apply();
  }
}

TEST(NewerLoads, DoNotDelayARequestThatLoadsNothingWhenTheAnswerIsUnknown) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = std::nullopt, .load_async = false};
  CoreDriver d(config_of(kNewer), {.connector = &connector});
  const Tokens prompt = CoreDriver::prompt(1, 10);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.skip_reading_prefix_cache = true;
  d.add(request);
  d.step();
  EXPECT_EQ(d.scheduled(1), 10U);
}

TEST(NewerLoads, ReportFoundTokensEvenIfTheLoadFails) {
  for (const auto profile : {kOlder, kNewer}) {
    ScriptedConnector connector;
    connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
    CoreDriver d(config_of(profile), {.connector = &connector});
    d.add(1, 10, 4);
    d.plan();
    d.apply({}, reported({d.blocks(1).at(1)}));
    EXPECT_EQ(d.view(1).num_computed_tokens, 4);
    EXPECT_EQ(d.step().updates.at(0).num_external_computed_tokens, profile == kOlder ? 4 : 8);
  }
}

TEST(NewerLoads, LeaveATokenToComputeAfterAPartlyFailedLoad) {
  ScriptedConnector connector;
  for (const std::uint64_t id : {2U, 3U}) connector.matches[RequestId{id}] = {.num_tokens = 4, .load_async = true};
  CoreDriver d(config_of(kNewer), {.connector = &connector});
  d.add(1, 4, 1);
  d.plan();
  const BlockId shared = d.blocks(1).at(0);
  d.apply();
  Tokens prompt = CoreDriver::prompt(1, 8);
  d.add(CoreDriver::request(2, prompt, 4));
  prompt.back() = 7;
  d.add(CoreDriver::request(3, prompt, 4));
  d.plan();
  ASSERT_EQ(d.blocks(2).at(0), shared);
  ASSERT_EQ(d.blocks(3).at(0), shared);
  const RequestIds received = {RequestId{2}, RequestId{3}};
  d.apply({}, reported({shared}, received));
  EXPECT_EQ(d.view(3).num_computed_tokens, 8) << "request 2 computes the shared block again";
  d.plan();
  EXPECT_EQ(d.scheduled(3), 1U) << "one token must run to sample from";
  d.apply();
}

TEST(NewerLoads, ShowOnlyComputedBlocksOfAFinishedRequest) {
  for (const auto profile : {kOlder, kNewer}) {
    ScriptedConnector connector;
    CoreConfig config = config_of(profile);
    config.speculation.num_lookahead_tokens = 4;
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 8, 2);
    d.step();
    connector.log.clear();
    d.step();
    EXPECT_EQ(connector.log.at(1), profile == kOlder ? "finished 1 status=7 blocks=[1 2 3 4]" : "finished 1 status=7 blocks=[1 2 3]");
  }
}

TEST(NewerLoads, ShowTheWindowOfAFinishedRequestAsOfAppliedResults) {
  for (const auto profile : {kOlder, kNewer}) {
    ScriptedConnector connector;
    CoreConfig config = config_of(profile, async_config());
    config.kv.groups = cache_groups_of({4});
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 10, 8);
    d.step();
    d.plan();  // with the token in flight the window has passed two blocks, without it one
    connector.log.clear();
    d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 9.0});
    EXPECT_EQ(connector.log.at(0), profile == kOlder ? "finished 1 status=8 blocks=[0 0 3]" : "finished 1 status=8 blocks=[0 2 3]");
    d.apply();
  }
}

// Both groups have found a block that no request holds, and each must load one block.
TEST(NewerLoads, TakeTheHitsOfAllGroupsBeforeBlocksForALoad) {
  ScriptedConnector connector;
  connector.matches[RequestId{3}] = {.num_tokens = 4, .load_async = true};
  CoreConfig config = config_of(kNewer, sync_config(5));
  config.kv.groups = cache_groups_of({0, 6});
  config.scheduler.reserve_full_isl = false;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 4, 1);
  d.step();
  d.add(2, 4, 1);
  d.step();
  ASSERT_EQ(d.snapshot().free_blocks, (std::vector<BlockId>{BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}}));
  const Tokens prompt = CoreDriver::prompt(1, 9);
  d.add(CoreDriver::request(3, prompt, 4));
  d.step();
  EXPECT_EQ(blocks_of(d, 3, 0), (Ids{1, 3}));
  EXPECT_EQ(blocks_of(d, 3, 1), (Ids{2, 4})) << "in 0.19.0 the first group takes the block that the second has found";
}

// A window of two tokens covers one loaded token, in the second block.
TEST(OlderLoads, TakeTheWindowBlockOfALoadedTokenBeforeBlocksOfComputedTokens) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
  CoreConfig config = config_of(kOlder);
  config.kv.groups = cache_groups_of({0, 2});
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 10, 4);
  d.plan();
  EXPECT_EQ(blocks_of(d, 1, 0), (Ids{1, 2, 4}));
  EXPECT_EQ(blocks_of(d, 1, 1), (Ids{0, 3, 5}));
  d.apply();
}

TEST(NewerLoads, TakeNoBlockForLoadedTokensThatTheWindowHasPassed) {
  for (const auto profile : {kOlder, kNewer}) {
    ScriptedConnector connector;
    connector.matches[RequestId{1}] = {.num_tokens = 3, .load_async = false};
    CoreConfig config = config_of(profile);
    config.kv.groups = cache_groups_of({0, 1});
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 10, 4);
    d.plan();
    // Blocks for a load are allocated before all others. The first block of the window is for tokens that run.
    EXPECT_EQ(blocks_of(d, 1, 0), profile == kOlder ? (Ids{1, 3, 4}) : (Ids{1, 2, 3}));
    EXPECT_EQ(blocks_of(d, 1, 1), profile == kOlder ? (Ids{2, 5, 6}) : (Ids{4, 5, 6}));
    d.apply();
  }
}

}  // namespace
}  // namespace quire::test
