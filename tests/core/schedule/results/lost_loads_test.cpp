// Tests failed loads when the blocks before an invalid block cannot be used: with several cache groups, or with a window.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "core/schedule/core_driver.h"
#include "quire/connector.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CoreConfig windowed(bool has_full_group) {
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 5;
  const KvCacheGroup group{.layer_names = {"window"}, .spec = window, .layer_specs = {}};
  if (!has_full_group) config.kv.groups.clear();
  config.kv.groups.push_back(group);
  return config;
}

// This connector loads the first 8 tokens of a request with one transfer per group while `matches` is true.
class GroupLoader final : public QuietConnector {
 public:
  bool matches = true;
  TransferNeed need = TransferNeed::nothing;
  std::vector<TransferId> ids;  // transfers of the newest plan

  ExternalMatch match(const RequestView& /*request*/, std::uint32_t num_local_tokens) override {
    ++num_matches;
    first_block = num_local_tokens / kBlockSize;
    if (!matches || num_local_tokens >= 8) return {.num_tokens = 0, .load_async = false};
    return {.num_tokens = 8 - num_local_tokens, .load_async = need == TransferNeed::nothing};
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    for (std::uint32_t group = 0; group < blocks.size() && num_external_tokens > 0; ++group)
      for (std::uint32_t i = first_block; i < 2; ++i)
        if (blocks[group][i] != kNullBlock) loads[{request.id, group}].push_back(blocks[group][i]);
  }
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override {
    ids.clear();
    for (const auto& [key, blocks] : std::exchange(loads, {}))
      ids.push_back(transfers.add(transfer_of(key.first, blocks, TransferDirection::load, need, key.second)).value());
    if (asks_to_store && plan.step.value > 0) try_to_store(plan.scheduled[0].id, transfers);
  }
  void try_to_store(RequestId request, TransferList& transfers) {
    const BlockId block[] = {BlockId{1}};
    num_refused_stores += transfers.add(transfer_of(request, block, TransferDirection::store)) ? 0 : 1;
  }
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override {
    num_valid_tokens_of[request.id.value] = num_valid_tokens;
  }

  bool asks_to_store = false;
  std::uint32_t num_refused_stores = 0;
  std::map<std::uint64_t, std::uint32_t> num_valid_tokens_of;  // number of valid tokens, by request
  std::uint32_t num_matches = 0, first_block = 0;
  std::map<std::pair<RequestId, std::uint32_t>, std::vector<BlockId>> loads;
};

TEST(LostLoads, FreeAllBlocksAndLookUpTheRequestAgain) {
  for (const bool has_full_group : {false, true}) {
    GroupLoader connector;
    CoreDriver d(windowed(has_full_group), {.connector = &connector});
    d.add(1, 14, 2);
    d.plan();
    std::vector<TransferCompletion> over;
    for (const TransferId id : connector.ids) over.push_back({.transfer = id});
    ASSERT_EQ(over.size(), has_full_group ? 2U : 1U);
    over.back().outcome = TransferOutcome::failed;
    EXPECT_EQ(d.core->counters().num_awaiting_transfers, 1U);
    d.apply({}, {.completions = over});
    EXPECT_EQ(d.view(1).status, RequestStatus::waiting);
    EXPECT_EQ(d.core->counters().num_awaiting_transfers, 0U);
    EXPECT_TRUE(d.core->all_blocks_free());
    EXPECT_EQ(connector.num_matches, 1U);
    connector.matches = false;
    const StepPlan& plan = d.plan();
    EXPECT_EQ(connector.num_matches, 2U);
    ASSERT_EQ(plan.scheduled.size(), 1U);
    EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 0U);
    EXPECT_EQ(d.apply().updates.at(0).num_external_computed_tokens, 0);
  }
}

// vLLM queries forever when a connector reports tokens that it cannot load. With the fix, the core stops after the second failure.
TEST(LostLoads, QueryAConnectorThatAlwaysFailsTwice) {
  for (const bool fixed : {false, true}) {
    for (const bool has_window : {false, true}) {
      GroupLoader connector;
      CoreConfig config = windowed(true);
      if (!has_window) config.kv.groups.pop_back();
      config.fixes.unloaded_begin_anew = fixed;
      CoreDriver d(config, {.connector = &connector});
      d.add(1, 14, 2);
      const auto fail = [&] {
        std::vector<TransferCompletion> over;
        for (const TransferId id : connector.ids) over.push_back({.transfer = id, .outcome = TransferOutcome::failed});
        d.apply({}, {.completions = over});
      };
      for (std::uint32_t asked = 1; asked <= 2; ++asked) {
        EXPECT_TRUE(d.plan().scheduled.empty());
        EXPECT_EQ(connector.num_matches, asked);
        fail();
      }
      EXPECT_EQ(scheduled_ids(d.plan()), fixed ? Ids({1}) : Ids()) << has_window;
      EXPECT_EQ(connector.num_matches, fixed ? 2U : 3U);
      if (fixed) EXPECT_EQ(d.apply().updates.at(0).num_external_computed_tokens, 0);
    }
  }
}

// The request finds its local hit again. The blocks of the load have no hash.
TEST(LostLoads, FindCachedBlocksAgain) {
  GroupLoader connector;
  CoreDriver d(windowed(true), {.connector = &connector});
  connector.matches = false;
  const Tokens prompt = CoreDriver::prompt(1, 14);
  d.add(CoreDriver::request(1, Tokens(prompt.begin(), prompt.begin() + 5), 1));
  d.step();
  EXPECT_TRUE(d.core->all_blocks_free());
  connector.matches = true;
  d.add(CoreDriver::request(2, prompt, 2));
  d.plan();
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U);
  const TransferCompletion over[] = {{.transfer = connector.ids.at(0), .outcome = TransferOutcome::failed},
                                     {.transfer = connector.ids.at(1)}};
  d.apply({}, {.completions = over});
  connector.matches = false;
  EXPECT_EQ(d.plan().scheduled[0].num_computed_tokens, 4U);
  d.apply();
}

// Requests that ran on the block have read invalid data. vLLM cannot continue then.
TEST(LostLoads, RefuseTheFailureOfALoadThatAStepNeedsWithSeveralGroups) {
  GroupLoader connector;
  connector.need = TransferNeed::step;
  CoreDriver d(windowed(true), {.connector = &connector});
  d.add(1, 14, 2);
  const StepId step = d.plan().step;
  const TransferCompletion failed[] = {{.transfer = connector.ids.at(0), .outcome = TransferOutcome::failed}};
  const auto applied = d.core->apply({.step = step, .completions = failed});
  ASSERT_FALSE(applied.has_value());
  EXPECT_EQ(applied.error().field, "completions");
  EXPECT_EQ(applied.error().code, ErrorCode::unsupported);
  const TransferCompletion done[] = {{.transfer = connector.ids[0]}, {.transfer = connector.ids[1]}};
  d.apply({}, {.completions = done});
}

// Holds the same case with the fix. Request 2 has found blocks that request 1 loads. Request 3 has found blocks that request 1 computed
// from them, in the next plan.
struct InvalidatedRequests {
  explicit InvalidatedRequests(KvLoadFailurePolicy policy, bool asks_to_store = false) {
    connector.asks_to_store = asks_to_store;
    connector.need = TransferNeed::step;
    config.kv_load_failure = policy;
    config.fixes.unloaded_begin_anew = true;
    config.scheduler.async_scheduling = true;
    config.limits.max_outstanding_plans = 2;
    d.emplace(config, CoreSeams{.connector = &connector});
    d->add(CoreDriver::request(1, prompt, 3));
    d->add(CoreDriver::request(2, prompt, 3));
    d->plan();
    failed.push_back({.transfer = connector.ids.at(0), .outcome = TransferOutcome::failed});
    failed.push_back({.transfer = connector.ids.at(1)});
    connector.matches = false;
    d->add(CoreDriver::request(3, prompt, 3));
    d->add(4, 9, 3);
    d->plan();
    EXPECT_EQ(d->view(3).num_computed_tokens, 14U);
  }
  GroupLoader connector;
  CoreConfig config = windowed(true);
  const Tokens prompt = CoreDriver::prompt(1, 14);
  std::optional<CoreDriver> d;
  std::vector<TransferCompletion> failed;
};

TEST(LostLoads, RestartInvalidatedRequestsAndDropTheirTokensWithTheFix) {
  InvalidatedRequests invalidated(KvLoadFailurePolicy::recompute);
  CoreDriver& d = *invalidated.d;
  const std::vector<RequestId> ids = d.core->requests_invalidated_by({.step = StepId{0}, .completions = invalidated.failed});
  EXPECT_EQ(Ids(values(ids)).size(), 3U);
  EXPECT_TRUE(d.apply({}, {.completions = invalidated.failed}).updates.empty());
  EXPECT_EQ(values(d.snapshot().running), std::vector<std::uint64_t>{4});
  EXPECT_EQ(values(d.snapshot().waiting), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(d.view(1).num_computed_tokens, 0U);
  const std::uint32_t num_matches = invalidated.connector.num_matches;
  const StepPlan& plan = d.plan();
  EXPECT_EQ(invalidated.connector.num_matches, num_matches) << "the core does not load for the requests again";
  EXPECT_EQ(plan.scheduled[1].num_computed_tokens, 0U) << "the request finds no cached block";
  const Outcome late = d.apply();
  ASSERT_EQ(late.updates.size(), 1U) << "tokens in flight of requests 1, 2 and 3 are dropped";
  EXPECT_EQ(late.updates[0].id, 4U);
  std::size_t num_outputs = 0;
  for (int i = 0; i < 4; ++i) {
    d.plan();
    for (const Update& update : d.apply().updates) num_outputs += update.tokens.size();
  }
  EXPECT_EQ(num_outputs, 3U * 3U + 2U);
  d.apply();
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(LostLoads, EndInvalidatedRequestsUnderTheFailPolicyWithTheFix) {
  InvalidatedRequests invalidated(KvLoadFailurePolicy::fail);
  CoreDriver& d = *invalidated.d;
  const Outcome outcome = d.apply({}, {.completions = invalidated.failed});
  ASSERT_EQ(outcome.updates.size(), 3U);
  for (const Update& update : outcome.updates) EXPECT_EQ(update.status, RequestStatus::finished_error);
  EXPECT_EQ(d.apply().updates.at(0).id, 4U);
  d.add(CoreDriver::request(5, invalidated.prompt, 1));
  EXPECT_EQ(d.plan().scheduled.back().num_computed_tokens, 0U) << "no block of the ended requests is found";
  d.apply();
}

TEST(LostLoads, RefuseStoresUntilTheResultOfALoadIsKnownWithTheFix) {
  InvalidatedRequests invalidated(KvLoadFailurePolicy::recompute, true);
  EXPECT_EQ(invalidated.connector.num_refused_stores, 1U) << "the plan after the one that needs the load refuses a store";
  invalidated.d->apply({}, {.completions = invalidated.failed});
  invalidated.d->plan();
  EXPECT_EQ(invalidated.connector.num_refused_stores, 1U);
  EXPECT_EQ(invalidated.connector.num_valid_tokens_of, (std::map<std::uint64_t, std::uint32_t>{{1, 0}, {2, 0}, {3, 0}}));
}

TEST(LostLoads, IgnoreAFailureAfterTheRequestHasEnded) {
  GroupLoader connector;
  CoreDriver d(windowed(true), {.connector = &connector});
  d.add(1, 14, 2);
  d.plan();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  const TransferCompletion failed[] = {{.transfer = connector.ids.at(0), .outcome = TransferOutcome::failed},
                                       {.transfer = connector.ids.at(1), .outcome = TransferOutcome::failed}};
  EXPECT_TRUE(d.apply({}, {.completions = failed}).updates.empty());
  EXPECT_TRUE(d.core->all_blocks_free());
}

}  // namespace
}  // namespace quire::test
