// Tests turns of tenants (SchedulerOptions::tenant_turns). Rows are shared as evenly as the demand of each tenant allows, and prompts leave
// a share of the tokens to other tenants. With one tenant the decisions do not change.
#include <fmt/format.h>

#include <map>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

CoreConfig with_turns(CoreConfig config) {
  config.scheduler.tenant_turns = true;
  return config;
}

// Adds a request of a tenant. The core copies the tags.
void add_for(CoreDriver& d, const char* tenant, std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
  const Tokens prompt = CoreDriver::prompt(id, num_prompt_tokens);
  NewRequest request = CoreDriver::request(id, prompt, max_tokens);
  const RequestTags tags{.tenant = tenant};
  request.tags = &tags;
  d.add(request);
}

TEST(TenantScheduler, AdmitANewTenantInTheNextStepWhenAnotherHasAllRows) {
  for (const CoreConfig& config : {sync_config(200), async_config(200)}) {
    CoreDriver d(with_turns(config));
    for (std::uint64_t id = 1; id <= 30; ++id) add_for(d, "many", id, 3, 50);
    d.step();
    d.step();
    EXPECT_EQ(d.core->counters().num_running, 8U);
    add_for(d, "one", 40, 3, 50);
    d.plan();
    EXPECT_GT(d.scheduled(40), 0U);
    EXPECT_EQ(d.view(8).status, RequestStatus::preempted) << "the newest request of the other tenant is preempted";
    EXPECT_EQ(d.apply().preempted, Ids{8});
    for (std::uint64_t id = 41; id <= 50; ++id) add_for(d, "one", id, 3, 50);
    d.step();
    std::uint32_t num_own = 0;
    for (std::uint64_t id = 40; id <= 50; ++id) num_own += d.view(id).status == RequestStatus::running ? 1 : 0;
    EXPECT_EQ(num_own, 4U) << "the tenant has half of the rows";
    const std::uint64_t num_preemptions = d.core->counters().num_preemptions;
    for (int i = 0; i < 5; ++i) d.step();
    EXPECT_EQ(d.core->counters().num_preemptions, num_preemptions) << "even shares do not change";
  }
}

TEST(TenantScheduler, LeaveAnotherTenantItsShareOfTheTokens) {
  CoreConfig config = with_turns(sync_config(200));
  config.scheduler.max_model_len = 700;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 3; ++id) add_for(d, "long", id, 600, 3);
  d.step();
  EXPECT_EQ(d.scheduled(1), 64U) << "the tenant is alone";
  add_for(d, "short", 10, 20, 5);
  add_for(d, "short", 11, 500, 5);
  d.step();
  EXPECT_EQ(d.scheduled(10), 20U);
  EXPECT_EQ(d.scheduled(11), 12U);
  EXPECT_EQ(d.scheduled(1), 32U);
  d.step();
  EXPECT_EQ(d.scheduled(10) + d.scheduled(11), 32U) << "a running prompt has its share too";
}

TEST(TenantScheduler, GiveBlocksToTheTenantWithFewerRows) {
  CoreConfig config = with_turns(sync_config(25));  // 24 blocks
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 6; ++id) add_for(d, "many", id, 13, 30);
  d.step();
  d.step();
  EXPECT_EQ(d.core->counters().num_free_blocks, 0U);
  add_for(d, "one", 10, 25, 4);
  d.step();
  EXPECT_EQ(d.view(10).status, RequestStatus::running);
  EXPECT_LE(d.core->counters().num_preemptions, 2U) << "the core preempts no more than the tenant needs";
  // The tenant with the most rows loses one when running requests need blocks.
  for (int i = 0; i < 3; ++i) d.step();
  EXPECT_FALSE(d.known(10) && d.view(10).status == RequestStatus::preempted);
}

TEST(TenantScheduler, PreemptNothingForARequestThatNeedsMoreThanItsShareOfTheBlocks) {
  CoreDriver d(with_turns(sync_config(25)));
  for (std::uint64_t id = 1; id <= 5; ++id) add_for(d, "many", id, 13, 3);
  d.step();
  add_for(d, "large", 10, 60, 4);
  d.step();
  EXPECT_EQ(d.core->counters().num_preemptions, 0U);
  for (std::uint64_t id = 20; id <= 40; ++id) add_for(d, "many", id, 13, 3);
  d.step();
  d.step();
  EXPECT_GT(d.scheduled(10), 0U) << "the request is first when blocks are free, before later requests";
}

// The share of the tenant with the waiting request is the only token of the step, and it cannot use it.
TEST(TenantScheduler, GiveTheFirstRunningRequestATokenWhenItsTenantHasNoShare) {
  CoreConfig config = with_turns(sync_config(25));  // 24 blocks
  config.scheduler.max_num_batched_tokens = 1;
  config.scheduler.reserve_full_isl = true;
  CoreDriver d(config);
  add_for(d, "large", 1, 60, 3);
  for (int i = 0; i < 50; ++i) d.step();
  add_for(d, "large", 2, 60, 3);
  add_for(d, "small", 10, 50, 3);
  d.step();
  EXPECT_EQ(d.view(10).status, RequestStatus::waiting) << "the request needs 13 blocks and 11 are free";
  EXPECT_EQ(d.scheduled(1), 1U);
  for (int i = 0; i < 250 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
}

TEST(TenantScheduler, PreemptTheLastOfTheTenantByPriority) {
  CoreConfig config = with_turns(sync_config(200));
  config.scheduler.policy = SchedulingPolicy::priority;
  config.scheduler.max_num_seqs = 3;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, 3);
    NewRequest request = CoreDriver::request(id, prompt, 50);
    const RequestTags tags{.tenant = "many"};
    request.tags = &tags;
    request.priority = id == 2 ? 5 : 1;
    d.add(request);
    d.step();
  }
  add_for(d, "one", 10, 3, 50);
  d.plan();
  EXPECT_GT(d.scheduled(10), 0U);
  EXPECT_EQ(d.apply().preempted, Ids{2});
}

// Returns the content of all plans as text.
std::string decisions(CoreConfig config, std::uint64_t seed, const std::string& tenant) {
  Random random(seed);
  config.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
  config.scheduler.async_scheduling = random.chance(0.5);
  Harness h(config);
  std::string text;
  for (std::uint64_t id = 0; id < 60; ++id) {
    auto request = random_request(random, RequestId{id}, config.scheduler.max_model_len);
    request->tags.tenant = tenant;
    request->request.tags = &request->tags;
    h.add(std::move(request));
  }
  while (h.core->has_work()) {
    const StepPlan& plan = h.plan();
    for (const ScheduledRequest& s : plan.scheduled) text += fmt::format(" {}:{}+{}", s.id.value, s.num_computed_tokens, s.num_tokens);
    text += fmt::format(" -{};", fmt::join(values(plan.preempted), ","));
    h.apply_oldest();
  }
  return text;
}

TEST(TenantScheduler, ChangeNothingWhenThereIsOneTenant) {
  for (std::uint64_t seed = 0; seed < rounds_of(30); ++seed) {
    const CoreConfig config = small_config(21);
    EXPECT_EQ(decisions(config, seed, "a"), decisions(with_turns(config), seed, "a")) << seed;
  }
}

struct Shares {
  std::map<std::string, std::uint32_t> rows, wanted;
};

// Expects the most even distribution of rows: a tenant has two rows more than another only if the other does not need more.
void expect_even(const Shares& shares, std::uint32_t num_rows) {
  std::uint32_t num_running = 0, num_wanted = 0;
  for (const auto& [tenant, wanted] : shares.wanted) {
    const auto of = [&](const std::string& name) { return shares.rows.contains(name) ? shares.rows.at(name) : 0U; };
    num_running += of(tenant);
    num_wanted += wanted;
    if (of(tenant) == wanted) continue;
    for (const auto& [other, rows] : shares.rows) EXPECT_LE(rows, of(tenant) + 1) << other << " compared with " << tenant;
  }
  EXPECT_EQ(num_running, std::min(num_rows, num_wanted));
}

TEST(TenantScheduler, ShareRowsEvenlyWhileRequestsArriveAndFinish) {
  std::uint64_t num_preemptions = 0;
  for (std::uint64_t seed = 0; seed < rounds_of(60) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    CoreConfig config = with_turns(small_config(2000));
    config.prefix_cache.enable_prefix_caching = false;  // otherwise a request whose blocks others reuse keeps its row for a step
    config.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
    config.scheduler.async_scheduling = random.chance(0.5);
    config.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(1, 12));
    config.scheduler.max_num_batched_tokens = 4000;
    Harness h(config);
    std::map<std::uint64_t, std::string> tenant_of;
    std::uint64_t next_id = 0;
    for (int step = 0; step < 120; ++step) {
      for (std::uint64_t i = random.chance(0.3) ? random.below(8) : 0; i > 0; --i) {
        auto request = random_request(random, RequestId{next_id}, config.scheduler.max_model_len);
        request->tags.tenant = std::string(1, static_cast<char>('a' + random.below(4)));
        request->request.tags = &request->tags;
        tenant_of[next_id++] = request->tags.tenant;
        h.add(std::move(request));
      }
      h.plan();
      Shares shares;
      h.core->visit([&](QueueKind, const RequestView& view) {
        ++shares.wanted[tenant_of.at(view.id.value)];
        shares.rows[tenant_of.at(view.id.value)] += view.status == RequestStatus::running ? 1 : 0;
      });
      expect_even(shares, config.scheduler.max_num_seqs);
      h.apply_oldest();
    }
    h.run_to_end();
    num_preemptions += h.core->counters().num_preemptions;
  }
  EXPECT_GT(num_preemptions, rounds_of(60)) << "too few preemptions";
}

// All answers are correct and all requests finish when there are too few blocks and tokens.
TEST(TenantScheduler, FinishEveryRequestWhenBlocksAndTokensAreScarce) {
  std::uint64_t num_preemptions = 0;
  for (std::uint64_t seed = 0; seed < rounds_of(60) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    CoreConfig config = with_turns(small_config(21 + static_cast<std::uint32_t>(random.below(20))));
    config.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
    config.scheduler.async_scheduling = random.chance(0.5);
    config.scheduler.reserve_full_isl = random.chance(0.5);
    config.scheduler.max_num_batched_tokens = static_cast<std::uint32_t>(random.between(1, 40));
    config.prefix_cache.enable_prefix_caching = random.chance(0.7);
    Harness h(config);
    std::uint64_t next_id = 0;
    for (int step = 0; step < 200; ++step) {
      for (std::uint64_t i = random.chance(0.2) ? random.below(6) : 0; i > 0; --i) {
        auto request = random_request(random, RequestId{next_id++}, config.scheduler.max_model_len);
        request->tags.tenant = std::string(random.below(3), 't');
        request->request.tags = &request->tags;
        h.add(std::move(request));
      }
      h.step();
    }
    h.run_to_end();
    num_preemptions += h.core->counters().num_preemptions;
  }
  EXPECT_GT(num_preemptions, rounds_of(60)) << "too few preemptions";
}

}  // namespace
}  // namespace quire::test
