// Tests Core::set_prefill_limits(): prompts take no more tokens of a step than the limit, tenants and prompts share them, each prompt gets
// some after a bounded number of steps, and decodes never wait.
#include <array>
#include <numeric>

#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

CoreConfig long_prompts(CoreConfig config) {
  config.scheduler.max_model_len = 2000;
  return config;
}

CoreDriver limited(const PrefillLimits& limits, CoreConfig config = long_prompts(sync_config(2000))) {
  CoreDriver d(config);
  d.core->set_prefill_limits(limits);
  return d;
}

void add_for(CoreDriver& d, const std::string& tenant, std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
  const Tokens prompt = CoreDriver::prompt(id, num_prompt_tokens);
  NewRequest request = CoreDriver::request(id, prompt, max_tokens);
  const RequestTags tags{.tenant = tenant};
  request.tags = &tags;
  d.add(request);
}

// Returns the prompt tokens of the plan. A chunk of one token that ends a prompt counts as a decode.
std::uint32_t num_prompt_tokens(const StepPlan& plan) {
  std::uint32_t sum = 0;
  for (const ScheduledRequest& s : plan.scheduled) sum += !s.samples || s.num_tokens > 1 ? s.num_tokens : 0;
  return sum;
}

TEST(PrefillLimits, CutAPromptBesideADecode) {
  CoreDriver d = limited({.beside_decodes = 20, .without_decodes = 40});
  d.add(1, 10, 50);
  d.step();
  EXPECT_EQ(d.scheduled(1), 10U);
  d.add(2, 500, 5);
  for (int i = 0; i < 5; ++i) {
    d.step();
    EXPECT_EQ(d.scheduled(1), 1U) << "the decode runs in each step";
    EXPECT_EQ(d.scheduled(2), 20U);
  }
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  d.step();
  EXPECT_EQ(d.scheduled(2), 40U) << "nothing decodes any more";
}

TEST(PrefillLimits, AreOffByDefault) {
  CoreDriver d(long_prompts(sync_config(2000)));
  d.add(1, 500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 64U) << "max_num_batched_tokens";
  d.core->set_prefill_limits({.beside_decodes = 20, .without_decodes = 40});
  d.step();
  EXPECT_EQ(d.scheduled(1), 40U);
  d.core->set_prefill_limits({});
  d.step();
  EXPECT_EQ(d.scheduled(1), 64U);
}

TEST(PrefillLimits, LetAShortPromptOvertakeALongOne) {
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60});
  d.add(1, 1500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 60U);
  d.add(2, 20, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 30U) << "half of the limit";
  EXPECT_EQ(d.scheduled(2), 20U) << "the whole prompt, one step after it arrived";
  d.step();
  EXPECT_EQ(d.scheduled(1), 40U) << "the other request decodes now";
  EXPECT_EQ(d.scheduled(2), 1U);
}

TEST(PrefillLimits, AreSharedByFourPromptsAtMost) {
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 40});
  for (std::uint64_t id = 1; id <= 6; ++id) d.add(id, 100, 5);
  for (int i = 0; i < 10; ++i) {
    d.step();
    for (std::uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(d.scheduled(id), id <= 4 ? 10U : 0U);
  }
  d.step();
  EXPECT_EQ(d.scheduled(1), 1U) << "the first prompts are computed";
  EXPECT_EQ(d.scheduled(5), 20U);
}

// A rest that is too small for a chunk goes to no prompt. As a chunk of one token it would pass for a decode, and so go to every prompt.
TEST(PrefillLimits, AreNotExceededByAChunkForEachWaitingPrompt) {
  for (const std::uint32_t num_drafts : {0U, 4U}) {
    CoreConfig config = long_prompts(sync_config(2000));
    config.scheduler.max_num_seqs = 60;
    config.scheduler.max_num_batched_tokens = 512;
    config.speculation.num_spec_tokens = num_drafts;
    CoreDriver d = limited({.beside_decodes = 65, .without_decodes = 65}, config);
    for (std::uint64_t id = 1; id <= 60; ++id) d.add(id, 100, 5);
    for (int i = 0; i < 6; ++i) {
      const StepPlan& plan = d.plan();
      EXPECT_LE(num_prompt_tokens(plan), 65U);
      EXPECT_LE(plan.scheduled.size(), 5U);
      d.apply();
    }
  }
}

TEST(PrefillLimits, AreNotSharedWithRequestsThatCannotRun) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.scheduler.max_num_seqs = 5;
  config.fixes.cut_sessions = true;
  config.fixes.idle_sessions_yield = true;
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60}, config);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, 20);
    NewRequest session = CoreDriver::request(id, prompt, 9);
    session.resumable = true;
    d.add(session);
    for (int i = 0; i < 9 && d.view(id).status != RequestStatus::waiting_for_input; ++i) d.step({{id, {kStop}}});
    ASSERT_EQ(d.view(id).status, RequestStatus::waiting_for_input);
  }
  d.add(4, 1000, 5);
  d.step();
  EXPECT_EQ(d.scheduled(4), 60U) << "sessions that wait for input take no share";
  for (std::uint64_t id = 5; id <= 7; ++id) d.add(id, 1, 500);
  d.step();
  d.step();
  EXPECT_EQ(d.scheduled(4), 40U);
  for (std::uint64_t id = 8; id <= 20; ++id) d.add(id, 100, 5);
  d.step();
  EXPECT_EQ(d.scheduled(4), 20U) << "one row is free for the requests that wait";
  EXPECT_EQ(d.scheduled(8), 20U);
}

TEST(PrefillLimits, AreNotSharedWithRequestsThatWaitForBlocks) {
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60}, long_prompts(sync_config(301)));
  d.add(1, 1000, 5);
  d.step();
  for (std::uint64_t id = 2; id <= 5; ++id) d.add(id, 900, 5);
  d.step();
  for (int i = 0; i < 6; ++i) {
    d.step();
    EXPECT_EQ(d.scheduled(1), 60U);
    EXPECT_EQ(d.scheduled(2), 0U) << "no blocks for its whole prompt";
  }
  for (int i = 0; i < 40 && d.scheduled(2) == 0; ++i) d.step();
  EXPECT_GT(d.scheduled(2), 0U) << "it runs when request 1 has ended";
}

// An idle session holds the blocks that the new request needs, and gives them up only to a request that has tokens.
TEST(PrefillLimits, ReachARequestThatNeedsTheBlocksOfAnIdleSession) {
  CoreConfig config = long_prompts(sync_config(601));
  config.fixes.cut_sessions = true;
  config.fixes.idle_sessions_yield = true;
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60}, config);
  const Tokens prompt = CoreDriver::prompt(1, 400);
  NewRequest session = CoreDriver::request(1, prompt, 9);
  session.resumable = true;
  d.add(session);
  while (d.outputs(1).empty()) d.step();
  for (int i = 0; i < 3 && d.view(1).status != RequestStatus::waiting_for_input; ++i) d.step({{1, {kStop}}});
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  d.add(2, 1900, 5);
  d.step();
  d.add(3, 300, 5);
  d.core->set_pause_state(PauseState::paused_new);
  d.step();
  d.core->set_pause_state(PauseState::unpaused);
  for (int i = 0; i < 18 && d.scheduled(3) == 0; ++i) d.step();
  EXPECT_GT(d.scheduled(3), 0U);
  EXPECT_GT(d.scheduled(2), 0U) << "the long prompt is not done yet";
}

// The second prompt waits until its blocks are free for good. If it began, the two would preempt each other.
TEST(PrefillLimits, KeepTheBlocksThatARunningPromptStillNeeds) {
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60}, long_prompts(sync_config(301)));
  d.add(1, 1000, 5);
  d.add(2, 900, 5);
  for (int i = 0; i < 100 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_EQ(d.core->counters().num_preemptions, 0U);
}

// Two tenants decode on all rows but one. Their waiting prompts get no row, so the prompt on the last row has all tokens.
TEST(PrefillLimits, AreNotSharedWithTenantsThatGetNoRow) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.scheduler.max_num_seqs = 3;
  config.scheduler.max_num_batched_tokens = 512;  // a third of these is more than the limit
  config.scheduler.tenant_turns = true;
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60}, config);
  add_for(d, "a", 1, 1, 500);
  add_for(d, "b", 2, 1, 500);
  add_for(d, "c", 3, 1000, 5);
  d.step();
  for (const char* tenant : {"a", "b"})
    for (std::uint64_t i = 0; i < 3; ++i) add_for(d, tenant, (tenant[0] == 'a' ? 10 : 20) + i, 500, 5);
  for (int i = 0; i < 4; ++i) {
    d.step();
    EXPECT_EQ(d.scheduled(3), 40U);
  }
}

// A session holds its blocks and needs few more. The blocks that a running prompt will need do not keep it waiting.
TEST(PrefillLimits, LetASessionContinueBesideAPromptThatNeedsAllBlocks) {
  CoreConfig config = long_prompts(sync_config(301));
  config.fixes.cut_sessions = true;
  CoreDriver d = limited({.beside_decodes = 40, .without_decodes = 60}, config);
  const Tokens prompt = CoreDriver::prompt(1, 20);
  NewRequest session = CoreDriver::request(1, prompt, 9);
  session.resumable = true;
  d.add(session);
  for (int i = 0; i < 9 && d.view(1).status != RequestStatus::waiting_for_input; ++i) d.step({{1, {kStop}}});
  d.add(2, 1172, 5);
  d.step();
  EXPECT_EQ(d.scheduled(2), 60U);
  const Tokens more{7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const SessionInput input{.tokens = more, .arrival_time = 100.0, .eos_ids = kEosIds, .stop_token_ids = kStopIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &input, {.now = d.now}).has_value());
  d.step();
  EXPECT_GT(d.scheduled(1), 0U);
}

TEST(PrefillLimits, AreSharedByTenantsFirst) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.scheduler.tenant_turns = true;
  CoreDriver d = limited({.beside_decodes = 64, .without_decodes = 64}, config);
  for (std::uint64_t id = 1; id <= 6; ++id) add_for(d, "many", id, 1500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 16U);
  add_for(d, "one", 10, 20, 5);
  d.step();
  EXPECT_EQ(d.scheduled(10), 20U) << "the whole prompt, although the other tenant's four prompts could use all tokens";
  EXPECT_EQ(d.scheduled(1), 11U) << "a quarter of the 44 tokens that are left";
  add_for(d, "two", 11, 1500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(11), 32U) << "half of the tokens";
}

// More tenants than chunks fit into a step: those whose prompts waited longest are next.
TEST(PrefillLimits, ReachEachOfManyTenantsAfterABoundedNumberOfSteps) {
  constexpr std::uint64_t kNumTenants = 30;
  CoreConfig config = long_prompts(sync_config(20000));
  config.scheduler.tenant_turns = true;
  config.scheduler.max_num_seqs = kNumTenants;
  CoreDriver d = limited({.beside_decodes = 16, .without_decodes = 16}, config);
  for (std::uint64_t id = 1; id <= kNumTenants; ++id)
    add_for(d, "tenant-" + std::to_string(id), id, 1000 + static_cast<std::uint32_t>(id), 5);
  std::array<int, kNumTenants + 1> last{};
  for (int i = 1; i <= 60; ++i) {
    EXPECT_LE(num_prompt_tokens(d.plan()), 18U);
    EXPECT_GT(d.scheduled(1), 0U) << "the first running prompt continues in each step";
    for (std::uint64_t id = 1; id <= kNumTenants; ++id) {
      if (d.scheduled(id) > 0) last.at(id) = i;
      EXPECT_LE(i - last.at(id), 6) << "tenant " << id << " in step " << i;
    }
    d.apply();
  }
}

TEST(PrefillLimits, CountALookUpOnceHoweverLongARequestWaits) {
  CoreDriver d = limited({.beside_decodes = 16, .without_decodes = 16});
  for (std::uint64_t id = 1; id <= 6; ++id) d.add(id, 200, 5);
  for (int i = 0; i < 20; ++i) d.step();
  EXPECT_EQ(d.core->counters().prefix_query_tokens, 4U * 200);
  while (d.core->has_work()) d.step();
  EXPECT_EQ(d.core->counters().prefix_query_tokens, 6U * 200);
}

CoreConfig large_steps(std::uint32_t num_blocks) {
  CoreConfig config = long_prompts(sync_config(num_blocks));
  config.scheduler.max_num_batched_tokens = 512;
  return config;
}

// Returns what the prompt tokens of the plan cost.
double prompt_cost(const StepPlan& plan, const PrefillLimits& limits) {
  double sum = 0.0;
  for (const ScheduledRequest& s : plan.scheduled) {
    if (s.samples && s.num_tokens == 1) continue;
    for (std::uint32_t i = 0; i < s.num_tokens; ++i)
      sum += limits.context_of_double_cost == 0 ? 1.0 : 1.0 + (s.num_computed_tokens + i + 0.5) / limits.context_of_double_cost;
  }
  return sum;
}

TEST(PrefillLimits, CountTokensOfALongContextMore) {
  CoreDriver d = limited({.beside_decodes = 100, .without_decodes = 100, .context_of_double_cost = 100}, large_steps(2000));
  d.add(1, 1500, 5);
  for (const std::uint32_t chunk : {73U, 50U, 41U}) {
    d.step();
    EXPECT_EQ(d.scheduled(1), chunk);
  }
  for (int i = 0; i < 60 && d.view(1).num_computed_tokens < 1000; ++i) d.step();
  d.step();
  EXPECT_EQ(d.scheduled(1), 9U) << "each token costs 11";
}

// The short prompt has no context, so half of the cost is many more tokens for it.
TEST(PrefillLimits, AreSharedByCost) {
  CoreDriver d = limited({.without_decodes = 500}, large_steps(2000));
  d.add(1, 1500, 5);
  d.step();
  ASSERT_EQ(d.view(1).num_computed_tokens, 500);
  d.core->set_prefill_limits({.beside_decodes = 200, .without_decodes = 200, .context_of_double_cost = 100});
  d.add(2, 1000, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 16U) << "each token costs 6";
  EXPECT_EQ(d.scheduled(2), 73U);
}

// The limit is less than two tokens of each tenant's prompt cost.
TEST(PrefillLimits, ReachEachTenantHoweverLongItsContextIs) {
  constexpr std::uint64_t kNumTenants = 10;
  CoreConfig config = large_steps(20000);
  config.scheduler.tenant_turns = true;
  config.scheduler.max_num_seqs = kNumTenants;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= kNumTenants; ++id) add_for(d, "tenant-" + std::to_string(id), id, 1500, 5);
  while (d.view(kNumTenants).num_computed_tokens < 500) d.step();
  const PrefillLimits limits{.beside_decodes = 16, .without_decodes = 16, .context_of_double_cost = 50};
  d.core->set_prefill_limits(limits);
  std::array<int, kNumTenants + 1> last{};
  for (int i = 1; i <= 60; ++i) {
    const StepPlan& plan = d.plan();
    EXPECT_LE(plan.scheduled.size(), 2U) << "the first running prompt, and the tenant whose turn it is";
    EXPECT_GT(d.scheduled(1), 0U);
    for (std::uint64_t id = 1; id <= kNumTenants; ++id) {
      if (d.scheduled(id) > 0) last.at(id) = i;
      EXPECT_LE(i - last.at(id), static_cast<int>(kNumTenants)) << "tenant " << id << " in step " << i;
    }
    d.apply();
  }
}

// A limit below two tokens still lets the first prompt continue.
TEST(PrefillLimits, LetAPromptContinueHoweverSmallTheyAre) {
  CoreDriver d = limited({.beside_decodes = 1, .without_decodes = 1});
  d.add(1, 9, 50);
  d.add(2, 9, 50);
  for (int i = 0; i < 12; ++i) d.step();
  EXPECT_FALSE(d.outputs(1).empty());
  EXPECT_FALSE(d.outputs(2).empty());
}

TEST(PrefillLimits, CutNoRequestWithEncoderInputs) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.encoder.max_encoder_tokens = 64;
  config.encoder.encoder_cache_size = 64;
  CoreDriver d = limited({.beside_decodes = 8, .without_decodes = 8}, config);
  const Tokens prompt = CoreDriver::prompt(1, 60);
  NewRequest request = CoreDriver::request(1, prompt, 5);
  const MultimodalFeature image{"image", {4, 40}};
  request.multimodal = {&image, 1};
  d.add(request);
  d.step();
  EXPECT_EQ(d.scheduled(1), 60U);
}

TEST(PrefillLimits, DoNotApplyWithoutChunkedPrefill) {
  CoreConfig config = long_prompts(sync_config(2000));
  config.scheduler.enable_chunked_prefill = false;
  config.scheduler.max_num_batched_tokens = config.scheduler.max_model_len;
  CoreDriver d = limited({.beside_decodes = 8, .without_decodes = 8}, config);
  d.add(1, 300, 5);
  d.step();
  EXPECT_EQ(d.scheduled(1), 300U);
}

// Limits that change at random, tenants, preemptions and reused prefixes: each request ends, no step exceeds the limit, and a core restored
// from a checkpoint decides the same.
TEST(PrefillLimits, HoldInRandomRuns) {
  for (std::uint64_t seed = 0; seed < rounds_of(50); ++seed) {
    Random random(seed);
    const auto below = [&](std::uint64_t bound) { return static_cast<std::uint32_t>(random.below(bound)); };
    CoreConfig config = long_prompts(seed % 2 == 0 ? sync_config(60) : async_config(60));
    config.scheduler.tenant_turns = seed % 4 >= 2;
    CoreDriver d(config);
    std::uint64_t next_id = 1;
    for (int i = 0; i < 3000 && (i < 200 || d.core->has_work()); ++i) {
      if (i < 200 && below(6) == 0) add_for(d, std::to_string(below(4)), next_id++, 1 + below(150), 1 + below(20));
      PrefillLimits limits{.beside_decodes = 1 + below(30), .without_decodes = 1 + below(60)};
      if (below(2) == 0) limits.context_of_double_cost = 1 + below(300);
      if (below(4) == 0) limits = {};
      d.core->set_prefill_limits(limits);
      const auto twin = i % 16 == 0 ? Core::restore(config, {}, d.core->checkpoint()).value() : nullptr;
      const StepPlan& plan = d.plan();
      if (twin != nullptr) EXPECT_EQ(scheduled_ids(twin->schedule({.now = d.now})), scheduled_ids(plan));
      if (limits != PrefillLimits{}) {
        // The first running prompt always gets two tokens, and so does one tenant.
        const double two = limits.context_of_double_cost == 0 ? 2.0 : 2.0 + 2.0 * 200 / limits.context_of_double_cost;
        const double most = std::max({static_cast<double>(limits.beside_decodes), static_cast<double>(limits.without_decodes), two});
        // The cost of each chunk is rounded down.
        EXPECT_LE(prompt_cost(plan, limits), two + most + static_cast<double>(plan.scheduled.size())) << "seed " << seed;
      }
      d.apply();
    }
    EXPECT_FALSE(d.core->has_work()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quire::test
