// Each rule in which vLLM 0.32.0 decides otherwise than 0.19.0, in its smallest case, under both.
#include "quire/decision_profile.h"

#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire {
namespace {

using test::async_config;
using test::CoreDriver;
using test::Ids;
using test::sync_config;
using test::Tokens;

CoreConfig under(DecisionProfile profile, CoreConfig config) {
  config.decisions = profile;
  return config;
}

constexpr auto kOld = DecisionProfile::vllm_0_19, kNew = DecisionProfile::vllm_0_32;

std::vector<BlockId> free_blocks(const CoreDriver& d) {
  CoreSnapshot snapshot;
  d.core->snapshot(snapshot);
  return snapshot.free_blocks;
}

TEST(DecisionProfile, ALonePrefillIsNotBoundByTheThreshold) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = under(profile, sync_config());
    config.scheduler.long_prefill_token_threshold = 4;
    CoreDriver d(config);
    d.add(1, 20, 4);
    d.step();
    EXPECT_EQ(d.scheduled(1), profile == kOld ? 4U : 20U);
    d.add(2, 20, 4);
    d.step();
    EXPECT_EQ(d.scheduled(2), 4U) << "two share the step";
  }
}

TEST(DecisionProfile, ABlockWithoutANameIsTheNextToBeUsed) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(under(profile, sync_config(8)));
    d.add(1, 6, 4);  // one full block, and a half one
    d.step();
    const auto blocks = d.blocks(1);
    const std::vector<BlockId> held(blocks.begin(), blocks.end());
    ASSERT_EQ(held.size(), 2U);
    EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 9.0}), FinishEffect::retired);
    const std::vector<BlockId> free = free_blocks(d);
    EXPECT_EQ(free.back(), held[0]) << "what has a name is kept longest";
    EXPECT_EQ(profile == kOld ? free[free.size() - 2] : free.front(), held[1]);
  }
}

TEST(DecisionProfile, ALookUpCountsWhenItsRequestIsAdmitted) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(under(profile, sync_config(6)));
    d.add(1, 15, 2);  // four of the five blocks
    d.add(2, 12, 2);  // waits for three
    const auto outcome = d.step();
    EXPECT_EQ(outcome.stats->prefix_cache.requests, profile == kOld ? 2U : 1U);
  }
}

TEST(DecisionProfile, MinTokensHoldsBackRepetitionOnly) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(under(profile, sync_config()));
    const Tokens prompt = CoreDriver::prompt(1, 4);
    NewRequest request = CoreDriver::request(1, prompt, 8);
    request.min_tokens = 3;
    d.add(request);
    const auto outcome = d.step({{1, {test::kEos}}});
    EXPECT_EQ(outcome.updates.at(0).finished, profile == kNew);
  }
}

TEST(DecisionProfile, WhatIsInFlightForAPreemptedRequestIsAwaitedNoMore) {
  for (const auto profile : {kOld, kNew}) {
    CoreDriver d(under(profile, async_config(6)));
    d.add(1, 8, 6);
    d.add(2, 8, 6);
    d.plan();  // two blocks each
    d.plan();  // the first takes the last one, and the second gives way
    EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
    EXPECT_EQ(d.view(2).num_output_placeholders, profile == kOld ? 1 : 0);
    EXPECT_EQ(d.view(2).num_stale_tokens, profile == kOld ? 0 : 8);
    const auto outcome = d.apply();
    EXPECT_EQ(outcome.updates.size(), 2U) << "its token is told all the same";
    EXPECT_EQ(d.view(2).num_stale_tokens, 0);
    EXPECT_EQ(d.view(2).num_output_placeholders, 0);
    d.apply();
  }
}

TEST(DecisionProfile, AResetDropsWhatIsInFlightAndIsToldInTheNextPlan) {
  CoreDriver d(under(kNew, async_config()));
  d.add(1, 8, 6);
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false, {.now = 5.0}).has_value());
  EXPECT_EQ(test::values(d.plan().preempted), (Ids{1}));
  EXPECT_EQ(d.scheduled(1), 8U) << "it goes on at once";
  EXPECT_TRUE(d.apply().updates.empty()) << "this token has another one in its place";
  EXPECT_EQ(d.apply().updates.at(0).tokens.size(), 1U);
}

TEST(DecisionProfile, WhoIsAdmittedForOneTokenRunsPlaceholdersForDrafts) {
  for (const auto profile : {kOld, kNew}) {
    CoreConfig config = under(profile, sync_config());
    config.speculation.num_spec_tokens = 3;
    CoreDriver d(config);
    d.add(1, 8, 20);
    d.step();
    d.step();
    Tokens prompt = CoreDriver::prompt(1, 8);
    prompt.push_back(7);
    d.add(CoreDriver::request(2, prompt, 8));  // all but one of its tokens are there
    d.step();
    EXPECT_EQ(d.scheduled(2), profile == kOld ? 1U : 4U);
  }
}

TEST(DecisionProfile, WhatTheNewerRulesAreNotWrittenForIsRefused) {
  const auto refused = [](auto change) {
    CoreConfig config = under(kNew, sync_config());
    change(config);
    const auto valid = config.validate();
    return valid ? std::string() : valid.error().field;
  };
  EXPECT_EQ(refused([](CoreConfig&) {}), "");
  EXPECT_EQ(refused([](CoreConfig& c) { c.kv.groups[0].spec = MambaSpec{}; }), "kv.groups");
  EXPECT_EQ(refused([](CoreConfig& c) { c.block_size = 2; }), "kv.groups") << "blocks of four tokens, named by two";
  EXPECT_EQ(refused([](CoreConfig& c) { c.scheduler.policy = SchedulingPolicy::continuum; }), "policy");
  EXPECT_EQ(refused([](CoreConfig& c) { c.cures.early_loads = true; }), "cures");
  EXPECT_EQ(refused([](CoreConfig& c) { c.encoder.max_encoder_tokens = 8; }), "encoder.max_encoder_tokens");
}

}  // namespace
}  // namespace quire
