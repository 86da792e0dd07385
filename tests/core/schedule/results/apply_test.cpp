// Tests how results are applied: which results are valid, which tokens are reported, when a request stops, and what is counted.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(Apply, ReportsUpdatesInThePlansOrderWithTheClient) {
  CoreDriver d(sync_config());
  for (std::uint64_t id : {3, 1, 2}) {
    const Tokens prompt = CoreDriver::prompt(id, 5);
    NewRequest request = CoreDriver::request(id, prompt, 5);
    request.client_index = static_cast<std::uint32_t>(10 + id);
    d.add(request);
  }
  const Outcome outcome = d.step({{3, {30}}, {1, {10}}, {2, {20}}});
  ASSERT_EQ(outcome.updates.size(), 3U);
  EXPECT_EQ(outcome.updates[0].id, 3U);
  EXPECT_EQ(outcome.updates[1].id, 1U);
  EXPECT_EQ(outcome.updates[2].id, 2U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Update& u = outcome.updates[i];
    EXPECT_EQ(u.client_index, 10 + u.id);
    EXPECT_EQ(u.result_index, i);
    EXPECT_EQ(u.tokens, Tokens{static_cast<TokenId>(10 * u.id)});
    EXPECT_FALSE(u.finished);
    EXPECT_EQ(u.num_cached_tokens, 0);
  }
  EXPECT_EQ(outcome.first_admissions, (std::vector<std::uint64_t>{3, 1, 2}));
}

TEST(Apply, ReportsNothingForAPrefillChunk) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_batched_tokens = 8;
  CoreDriver d(config);
  d.add(1, 10, 5);
  EXPECT_TRUE(d.step().updates.empty());
  EXPECT_EQ(d.step().updates.size(), 1U);
}

TEST(Apply, Trap30ReportsAStopIdButNoEosId) {
  CoreDriver d(sync_config());
  d.add(1, 3, 5);
  d.add(2, 3, 5);
  d.add(3, 3, 1);
  const Outcome outcome = d.step({{1, {kEos}}, {2, {kStop}}, {3, {7}}});
  ASSERT_EQ(outcome.updates.size(), 3U);
  for (const Update& u : outcome.updates) {
    EXPECT_TRUE(u.finished);
    EXPECT_EQ(u.tokens.size(), 1U);
    EXPECT_FALSE(u.session_waits);
  }
  EXPECT_EQ(outcome.updates[0].reason, FinishReason::stop);
  EXPECT_FALSE(outcome.updates[0].stop_token);
  EXPECT_EQ(outcome.updates[1].stop_token, kStop);
  EXPECT_EQ(outcome.updates[2].reason, FinishReason::length);
  EXPECT_EQ(outcome.updates[2].status, RequestStatus::finished_length);
  EXPECT_EQ(outcome.retired, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->has_finished_requests());
}

TEST(Apply, ListsFinishedRequestsInTheNextPlan) {
  CoreDriver d(sync_config());
  d.add(1, 3, 1);
  d.add(2, 3, 5);
  d.step();
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.finished), std::vector<std::uint64_t>{1});
  EXPECT_FALSE(d.core->has_finished_requests());
  d.apply();
  EXPECT_TRUE(d.plan().finished.empty());
  d.apply();
}

TEST(Apply, RemovesStoppedRequestsAndKeepsTheOrderOfTheOthers) {
  CoreDriver d(sync_config());
  for (std::uint64_t id = 1; id <= 5; ++id) d.add(id, 3, id % 2 == 0 ? 1 : 9);
  d.step();
  EXPECT_EQ(values(d.snapshot().running), (std::vector<std::uint64_t>{1, 3, 5}));
}

TEST(Apply, Trap30StopsAtARepetition) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 3);
  NewRequest request = CoreDriver::request(1, prompt, 50);
  request.repetition = {1, 3, 3};
  d.add(request);
  for (TokenId token : {5, 6, 5, 6, 5}) EXPECT_FALSE(d.step({{1, {token}}}).updates.at(0).finished);
  const Outcome outcome = d.step({{1, {6}}});
  EXPECT_EQ(outcome.updates.at(0).status, RequestStatus::finished_repetition);
  EXPECT_EQ(outcome.updates.at(0).reason, FinishReason::repetition);
}

TEST(Apply, EndsAPoolingRequestWithItsFirstPooledOutput) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_batched_tokens = 8;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(1, 10);
  NewRequest request = CoreDriver::request(1, prompt, 1);
  request.pooling = true;
  d.add(request);
  EXPECT_FALSE(d.plan().scheduled[0].pools) << "the plan runs only a chunk";
  EXPECT_TRUE(d.apply({{1, {}}}).updates.empty());
  EXPECT_TRUE(d.plan().scheduled[0].pools);
  const RequestId pooled[] = {RequestId{1}};
  const Outcome outcome = d.apply({{1, {}}}, {.step = {}, .pooled = pooled});
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_TRUE(outcome.updates[0].tokens.empty());
  EXPECT_TRUE(outcome.updates[0].finished);
  EXPECT_EQ(outcome.updates[0].status, RequestStatus::finished_stopped);
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Apply, ReportsEventsOnceWithTheirTimes) {
  CoreDriver d(sync_config());
  d.now = 10.0;
  d.add(1, 3, 5);
  const Outcome first = d.step();
  ASSERT_EQ(first.updates.at(0).events.size(), 2U);
  EXPECT_EQ(first.updates[0].events[0].kind, RequestEventKind::queued);
  EXPECT_EQ(first.updates[0].events[0].timestamp, 10.0);
  EXPECT_EQ(first.updates[0].events[1].kind, RequestEventKind::scheduled);
  EXPECT_EQ(first.updates[0].events[1].timestamp, 11.0);
  EXPECT_TRUE(d.step().updates.at(0).events.empty());
}

TEST(Apply, CountsNothingWithoutLogStats) {
  CoreConfig config = sync_config();
  config.report.log_stats = false;
  CoreDriver d(config);
  d.add(1, 3, 5);
  const Outcome outcome = d.step();
  EXPECT_FALSE(outcome.stats);
  EXPECT_TRUE(outcome.updates.at(0).events.empty());
  EXPECT_EQ(d.core->make_stats(), nullptr);
}

TEST(Apply, ReportsStatsOfTheStateAfterTheStep) {
  CoreConfig config = sync_config(9);
  config.scheduler.max_num_seqs = 2;
  CoreDriver d(config);
  d.add(1, 8, 5);
  d.add(2, 4, 1);
  d.add(3, 4, 1);
  const Outcome outcome = d.step();
  ASSERT_TRUE(outcome.stats);
  EXPECT_EQ(outcome.stats->num_running, 1U);
  EXPECT_EQ(outcome.stats->num_waiting, 1U);
  EXPECT_DOUBLE_EQ(outcome.stats->kv_cache_usage, 2.0 / 8.0);
  EXPECT_EQ(outcome.stats->encoder_cache_usage, 0.0);
  EXPECT_EQ(outcome.stats->prefix_cache.requests, 2U);
  EXPECT_EQ(outcome.stats->prefix_cache.queries, 12U);
  EXPECT_FALSE(outcome.stats->connector_prefix_cache);
  EXPECT_FALSE(outcome.stats->spec_decoding);
  EXPECT_EQ(d.core->make_stats()->prefix_cache.requests, 0U) << "counted since the previous stats";
}

TEST(Apply, ReportsEvictionsWithTheLifetimesOfTheBlocks) {
  CoreConfig config = sync_config(3);
  config.report.kv_metrics_sample = 1.0;
  CoreDriver d(config);
  d.add(1, 8, 1);
  EXPECT_TRUE(d.step().stats->evictions.empty());
  const double born = d.now - 1.0;
  d.add(2, 4, 1);
  d.plan();
  const double evicted = d.now;
  std::vector<double> lifetimes;
  const SampledToken token[] = {{RequestId{2}, 5}};
  const auto outcome = d.core->apply({.step = StepId{1}, .sampled = token}, {.now = d.now});
  for (const KvEvictionEvent& event : outcome.value()->stats->evictions) lifetimes.push_back(event.lifetime);
  EXPECT_EQ(lifetimes, std::vector<double>{evicted - born});
  config.report.kv_metrics_sample = 1.5;
  EXPECT_EQ(Core::create(config).error().field, "report.kv_metrics_sample");
}

TEST(Apply, ReportsFinishedSetsOncePerClient) {
  CoreConfig config = sync_config();
  config.report.include_finished_set = true;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, 3);
    NewRequest request = CoreDriver::request(id, prompt, id == 4 ? 2 : 1);
    request.client_index = id == 2 ? 7 : 0;
    d.add(request);
  }
  d.plan();
  d.core->finish(RequestId{3}, RequestStatus::finished_aborted);
  const Outcome outcome = d.apply();
  EXPECT_EQ(outcome.finished_sets, (std::map<std::uint32_t, std::vector<std::uint64_t>>{{0, {3, 1}}, {7, {2}}}));
  EXPECT_EQ(d.step().finished_sets.at(0), Ids{4});
  EXPECT_TRUE(d.step().finished_sets.empty());
}

TEST(Apply, ReportsKvEventsOfTheStep) {
  CoreConfig config = sync_config();
  config.report.enable_kv_events = true;
  CoreDriver d(config);
  d.add(1, 8, 5);
  EXPECT_EQ(d.step().kv_events.size(), 1U);
  EXPECT_TRUE(d.step().kv_events.empty());
}

// --- results that do not match the plan change nothing ---

struct BadResult {
  const char* field;
  StepResult result;
};

TEST(Apply, RefusesAResultThatDoesNotMatchThePlan) {
  CoreDriver d(sync_config());
  EXPECT_FALSE(d.core->apply({}, {}).has_value()) << "no plan is outstanding";
  d.add(1, 3, 5);
  d.add(2, 3, 5);
  d.plan();
  const SampledToken two_of_one[] = {{RequestId{1}, 5}, {RequestId{1}, 6}, {RequestId{2}, 7}};
  const SampledToken wrong_order[] = {{RequestId{2}, 5}, {RequestId{1}, 6}};
  const SampledToken unknown_token[] = {{RequestId{1}, 5}, {RequestId{9}, 6}};
  const RequestId pooled[] = {RequestId{1}};
  const RequestId ids[] = {RequestId{1}};
  const RequestId unknown_ids[] = {RequestId{9}};
  const BlockId outside[] = {BlockId{32}};
  const StepId step{0};
  const BadResult bad[] = {
      {"step", {.step = StepId{1}}},
      {"sampled", {.step = step, .sampled = two_of_one}},
      {"sampled", {.step = step, .sampled = wrong_order}},
      {"sampled", {.step = step, .sampled = unknown_token}},
      {"pooled", {.step = step, .pooled = pooled}},
      {"pooled", {.step = step, .pooled = unknown_ids}},
      {"finished_sending", {.step = step, .has_connector_output = true, .finished_sending = ids}},
      {"finished_sending", {.step = step, .has_connector_output = true, .finished_sending = unknown_ids}},
      {"finished_receiving", {.step = step, .has_connector_output = true, .finished_receiving = ids}},
      {"finished_receiving", {.step = step, .has_connector_output = true, .finished_receiving = unknown_ids}},
      {"invalid_blocks", {.step = step, .has_connector_output = true, .invalid_blocks = outside}},
  };
  for (const BadResult& b : bad) {
    const auto applied = d.core->apply(b.result, {});
    ASSERT_FALSE(applied.has_value()) << b.field;
    EXPECT_EQ(applied.error().field, b.field);
    EXPECT_EQ(d.core->num_outstanding_plans(), 1U);
    EXPECT_TRUE(d.outputs(1).empty());
    EXPECT_TRUE(d.outputs(2).empty());
  }
  EXPECT_EQ(d.apply().updates.size(), 2U);
}

TEST(Apply, RefusesATokenForAPrefillChunk) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_batched_tokens = 8;
  CoreDriver d(config);
  d.add(1, 10, 5);
  d.plan();
  const SampledToken early[] = {{RequestId{1}, 5}};
  const auto applied = d.core->apply({.step = StepId{0}, .sampled = early}, {});
  ASSERT_FALSE(applied.has_value());
  EXPECT_EQ(applied.error().field, "sampled");
  d.apply();
}

// Records the status of a request while a grammar accepts its tokens.
class WatchingGrammar final : public ScriptedGrammar {
 public:
  bool accept(RequestId id, std::span<const TokenId> /*tokens*/) override {
    seen.push_back(core->view(id)->status);
    return true;
  }
  const Core* core = nullptr;
  std::vector<RequestStatus> seen;
};

TEST(Apply, ShowsTheFinalStatusToTheGrammar) {
  WatchingGrammar grammar;
  CoreConfig config = sync_config();
  config.decisions = DecisionProfile::vllm_0_32;  // these rules call the grammar before the request ends
  CoreDriver d(config, {.grammar = &grammar});
  grammar.core = d.core.get();
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 5);
  request.structured_output = true;
  d.add(request);
  d.step();
  d.step({{1, {kStop}}});
  EXPECT_EQ(grammar.seen, (std::vector<RequestStatus>{RequestStatus::running, RequestStatus::finished_stopped}));
}

}  // namespace
}  // namespace quire::test
