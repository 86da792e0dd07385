// DecisionRules::padded_decodes: who is admitted for one token runs as many as those who run with drafts, all but the first of them
// placeholders; or it waits.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

struct PaddedCase {
  std::uint32_t max_model_len = 100, num_batched = 64, num_drafts = 3, threshold = 0;
  bool somebody_runs = true;
  std::uint32_t num_running_prompt = 4;
  DecisionProfile profile = DecisionProfile::vllm_0_32;
};

// Tokens of each in the plan in which 2, of which 8 tokens are cached, asks for one, and 3 for all of its prompt.
struct Planned {
  std::uint32_t of_cached = 0, of_new = 0;
  Tokens drafts;
};

Planned planned(const PaddedCase& given, std::uint32_t num_new_prompt = 0) {
  CoreConfig config = sync_config(64);
  config.decisions = given.profile;
  config.speculation.num_spec_tokens = given.num_drafts;
  config.scheduler.max_model_len = given.max_model_len;
  config.scheduler.max_num_batched_tokens = given.num_batched;
  CoreDriver d(config);
  const Tokens prompt = CoreDriver::prompt(2, 9);
  d.add(CoreDriver::request(9, prompt, 1));
  while (d.known(9)) d.step();
  if (given.somebody_runs) {
    d.add(1, given.num_running_prompt, 6);
    d.step();
  }
  d.add(CoreDriver::request(2, prompt, 2));
  if (num_new_prompt > 0) d.add(3, num_new_prompt, 2);
  const StepPlan& plan = d.plan();
  Planned planned{.of_cached = d.scheduled(2), .of_new = d.scheduled(3), .drafts = {}};
  for (const ScheduledRequest& one : plan.scheduled)
    if (one.id == RequestId{2}) planned.drafts.assign(one.drafts.begin(), one.drafts.end());
  d.apply();
  return planned;
}

TEST(Padded, OneTokenIsRunWithPlaceholdersForDrafts) {
  const Planned all = planned({});
  EXPECT_EQ(all.of_cached, 4U);
  EXPECT_EQ(all.drafts, Tokens(3, -1));
  EXPECT_EQ(planned({.somebody_runs = false}).of_cached, 4U) << "its cached tokens make it a decode";
  EXPECT_EQ(planned({.num_drafts = 2}).of_cached, 3U);
  const Planned none = planned({.num_drafts = 0});
  EXPECT_EQ(none.of_cached, 1U);
  EXPECT_TRUE(none.drafts.empty());
  EXPECT_EQ(planned({.profile = DecisionProfile::vllm_0_19}).of_cached, 1U);
}

TEST(Padded, APromptIsRunAsItIs) {
  const Planned both = planned({}, 6);
  EXPECT_EQ(both.of_cached, 4U);
  EXPECT_EQ(both.of_new, 6U);
  EXPECT_EQ(planned({}, 2).of_new, 2U);
  EXPECT_EQ(planned({}, 1).of_new, 4U) << "one of a single token is a decode where others run";
}

// 8 cached, one, three placeholders, and the one that is sampled behind them.
TEST(Padded, OnlyWhereAllHaveAPlace) {
  EXPECT_EQ(planned({.max_model_len = 13}).of_cached, 4U);
  EXPECT_EQ(planned({.max_model_len = 12}).of_cached, 1U);
}

TEST(Padded, WhoCannotHaveItsPlaceholdersWaits) {
  EXPECT_EQ(planned({.num_batched = 9}).of_cached, 4U);
  EXPECT_EQ(planned({.num_batched = 5}).of_cached, 4U) << "one runs";
  EXPECT_EQ(planned({.num_batched = 4}).of_cached, 0U) << "three are left, of four";
}

TEST(Padded, NotBesideAPromptThatIsRunInChunks) {
  EXPECT_EQ(planned({.num_batched = 12, .num_running_prompt = 13}).of_cached, 1U);
  EXPECT_EQ(planned({.num_batched = 12, .num_running_prompt = 12}).of_cached, 4U);
}

}  // namespace
}  // namespace quire::test
