// Loads that failed where what lies before a bad block is no use: with several cache groups, or with a window.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "core/schedule/core_driver.h"
#include "quire/connector.h"

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

// Loads the first 8 tokens of a request, with a transfer for each group, as long as `matches` says so.
class GroupLoader final : public Connector {
 public:
  bool matches = true;
  TransferNeed need = TransferNeed::nothing;
  std::vector<TransferId> ids;  // of the newest plan

  ExternalMatch match(const RequestView& /*request*/, std::uint32_t num_local_tokens) override {
    ++num_matches;
    first_block = num_local_tokens / kBlockSize;
    return {.num_tokens = matches ? 8 - num_local_tokens : 0, .load_async = matches && need == TransferNeed::nothing};
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    for (std::uint32_t group = 0; group < blocks.size() && num_external_tokens > 0; ++group)
      for (std::uint32_t i = first_block; i < 2; ++i)
        if (blocks[group][i] != kNullBlock) loads[{request.id, group}].push_back(blocks[group][i]);
  }
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    ids.clear();
    for (const auto& [whose, blocks] : std::exchange(loads, {})) {
      const std::vector<std::uint64_t> places(blocks.size(), 0);
      const auto id = transfers.add({.id = {},
                                     .request = whose.first,
                                     .direction = TransferDirection::load,
                                     .need = need,
                                     .group = whose.second,
                                     .blocks = blocks,
                                     .places = places});
      ids.push_back(*id);
    }
  }
  void step_output() override {}
  bool reset() override { return true; }

  std::uint32_t num_matches = 0, first_block = 0;
  std::map<std::pair<RequestId, std::uint32_t>, std::vector<BlockId>> loads;
};

TEST(LostLoads, ItsRequestGivesAllBackAndIsLookedUpAnew) {
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

// Its local hit is found again; the blocks of the load carry no name.
TEST(LostLoads, WhatTheCacheHasIsFoundAgain) {
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

// Whoever has run on it has read what was not there.
TEST(LostLoads, ALoadThatAStepNeedsMustNotFailWithSeveralGroups) {
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

TEST(LostLoads, ALoadThatFailsWhenItsRequestHasEndedHarmsNobody) {
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
