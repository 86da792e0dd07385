// Tests DecisionRules::padded_decodes. A request that is admitted for one token runs as many tokens as the requests that run with draft
// tokens. All but its first token are placeholders. If they do not fit, the request waits.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

struct PaddedCase {
  std::uint32_t max_model_len = 100, num_batched = 64, num_drafts = 3, threshold = 0;
  bool has_running_request = true;
  std::uint32_t num_running_prompt = 4;
  DecisionProfile profile = DecisionProfile::vllm_0_32;
};

// Holds the tokens of requests 2 and 3 in one plan. Request 2 has 8 cached tokens and needs one; request 3 needs all of its prompt.
struct Planned {
  std::uint32_t cached_request = 0, new_request = 0;
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
  if (given.has_running_request) {
    d.add(1, given.num_running_prompt, 6);
    d.step();
  }
  d.add(CoreDriver::request(2, prompt, 2));
  if (num_new_prompt > 0) d.add(3, num_new_prompt, 2);
  const StepPlan& plan = d.plan();
  Planned planned{.cached_request = d.scheduled(2), .new_request = d.scheduled(3), .drafts = {}};
  for (const ScheduledRequest& one : plan.scheduled)
    if (one.id == RequestId{2}) planned.drafts.assign(one.drafts.begin(), one.drafts.end());
  d.apply();
  return planned;
}

TEST(Padded, AddsDraftPlaceholdersToASingleToken) {
  const Planned all = planned({});
  EXPECT_EQ(all.cached_request, 4U);
  EXPECT_EQ(all.drafts, Tokens(3, -1));
  EXPECT_EQ(planned({.has_running_request = false}).cached_request, 4U) << "the cached tokens make the request a decode";
  EXPECT_EQ(planned({.num_drafts = 2}).cached_request, 3U);
  const Planned none = planned({.num_drafts = 0});
  EXPECT_EQ(none.cached_request, 1U);
  EXPECT_TRUE(none.drafts.empty());
  EXPECT_EQ(planned({.profile = DecisionProfile::vllm_0_19}).cached_request, 1U);
}

TEST(Padded, DoesNotPadAPrompt) {
  const Planned both = planned({}, 6);
  EXPECT_EQ(both.cached_request, 4U);
  EXPECT_EQ(both.new_request, 6U);
  EXPECT_EQ(planned({}, 2).new_request, 2U);
  EXPECT_EQ(planned({}, 1).new_request, 4U) << "a prompt of a single token is a decode when other requests run";
}

// 8 cached tokens, one new token, three placeholders, and the sampled token after them need 13 slots.
TEST(Padded, PadsOnlyWhenAllPlaceholdersFitTheModelsContext) {
  EXPECT_EQ(planned({.max_model_len = 13}).cached_request, 4U);
  EXPECT_EQ(planned({.max_model_len = 12}).cached_request, 1U);
}

TEST(Padded, DelaysARequestWhosePlaceholdersExceedTheBudget) {
  EXPECT_EQ(planned({.num_batched = 9}).cached_request, 4U);
  EXPECT_EQ(planned({.num_batched = 5}).cached_request, 4U) << "one token of the budget is in use";
  EXPECT_EQ(planned({.num_batched = 4}).cached_request, 0U) << "three tokens of the budget are left and four are needed";
}

TEST(Padded, DoesNotPadWhenAChunkedPromptRuns) {
  EXPECT_EQ(planned({.num_batched = 12, .num_running_prompt = 13}).cached_request, 1U);
  EXPECT_EQ(planned({.num_batched = 12, .num_running_prompt = 12}).cached_request, 4U);
}

}  // namespace
}  // namespace quire::test
