// Tests draft tokens on the output side: rejected draft tokens are removed, new ones are handed over, and grammars filter them.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CoreConfig speculative_config(CoreConfig config = sync_config()) {
  config.speculation.num_spec_tokens = 3;
  return config;
}

void set_drafts(CoreDriver& d, std::uint64_t id, const Tokens& tokens) {
  const Draft draft{RequestId{id}, tokens};
  d.core->set_drafts({&draft, 1});
}

void set_drafts_in_plan(CoreDriver& d, std::uint64_t id, const Tokens& tokens) {
  const Draft draft{RequestId{id}, tokens};
  d.core->set_drafts_in_plan({&draft, 1});
}

Tokens drafts_of(const CoreDriver& d, std::uint64_t id) {
  const auto drafts = d.view(id).draft_tokens;
  return {drafts.begin(), drafts.end()};
}

Tokens planned_drafts(const StepPlan& plan, std::uint64_t id) {
  for (const ScheduledRequest& s : plan.scheduled)
    if (s.id.value == id) return {s.drafts.begin(), s.drafts.end()};
  return {};
}

TEST(Drafts, ReturnAcceptedDraftTokensWithTheNextToken) {
  CoreDriver d(speculative_config());
  d.add(1, 5, 20);
  d.step();
  set_drafts(d, 1, {50, 51, 52});
  EXPECT_EQ(planned_drafts(d.plan(), 1), (Tokens{50, 51, 52}));
  EXPECT_EQ(d.view(1).num_computed_tokens, 9U);
  const Outcome outcome = d.apply({{1, {50, 51, 52, 53}}});
  EXPECT_EQ(outcome.updates.at(0).tokens, (Tokens{50, 51, 52, 53}));
  EXPECT_EQ(d.view(1).num_computed_tokens, 9U);
  EXPECT_TRUE(drafts_of(d, 1).empty());
}

TEST(Drafts, Trap29DoNotCountRejectedDraftTokensAsComputed) {
  CoreDriver d(speculative_config());
  d.add(1, 5, 20);
  d.step();
  set_drafts(d, 1, {50, 51, 52});
  d.plan();
  d.apply({{1, {50, 60}}});
  EXPECT_EQ(d.view(1).num_computed_tokens, 7U);
  EXPECT_EQ(d.view(1).tokens.size(), 8U);
}

TEST(Drafts, Trap29ReducePlaceholdersByRejectedDraftTokens) {
  CoreDriver d(speculative_config(async_config()));
  d.add(1, 5, 20);
  d.plan();
  EXPECT_EQ(d.view(1).num_output_placeholders, 1);
  EXPECT_EQ(drafts_of(d, 1), (Tokens{-1, -1, -1}));
  EXPECT_EQ(planned_drafts(d.plan(), 1), (Tokens{-1, -1, -1}));
  EXPECT_EQ(d.view(1).num_output_placeholders, 5);
  d.apply({{1, {40}}});
  EXPECT_EQ(d.view(1).num_output_placeholders, 4);
  d.apply({{1, {50, 51}}});
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  EXPECT_EQ(d.view(1).num_computed_tokens, 7U);
}

TEST(Drafts, RejectedDraftTokensOfADiscardedResultMakePlaceholdersNegative) {
  CoreDriver d(speculative_config(async_config()));
  d.add(1, 5, 20);
  d.plan();
  d.plan();
  d.apply({{1, {40}}});
  ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
  d.plan();
  EXPECT_EQ(d.view(1).num_output_placeholders, 1);
  EXPECT_TRUE(d.apply({{1, {50, 51}}}).updates.empty()) << "the result is discarded";
  EXPECT_EQ(d.view(1).num_output_placeholders, -1) << "the two rejected draft tokens are subtracted anyway";
  EXPECT_EQ(d.view(1).num_computed_tokens, 4U);
  EXPECT_EQ(d.plan().scheduled[0].num_tokens, 4U) << "6 tokens and 3 draft tokens, minus 1 placeholder and 4 computed tokens";
}

TEST(Drafts, Trap29DropTokensAfterAStopAndCountAllAccepted) {
  CoreDriver d(speculative_config());
  d.add(1, 5, 20);
  d.step();
  set_drafts(d, 1, {50, kStop, 52});
  d.plan();
  const Outcome outcome = d.apply({{1, {50, kStop, 52, 53}}});
  EXPECT_EQ(outcome.updates.at(0).tokens, (Tokens{50, kStop}));
  EXPECT_EQ(outcome.updates.at(0).stop_token, kStop);
  ASSERT_TRUE(outcome.stats->spec_decoding);
  EXPECT_EQ(outcome.stats->spec_decoding->num_accepted_tokens, 3U);
}

TEST(Drafts, CountDraftsAndAcceptedPositions) {
  CoreDriver d(speculative_config());
  d.add(1, 5, 20);
  d.add(2, 5, 20);
  EXPECT_FALSE(d.step().stats->spec_decoding);
  set_drafts(d, 1, {50, 51, 52});
  set_drafts(d, 2, {50, 51});
  d.plan();
  const Outcome outcome = d.apply({{1, {50, 51, 60}}, {2, {60}}});
  ASSERT_TRUE(outcome.stats->spec_decoding);
  const SpecDecodingStats& stats = *outcome.stats->spec_decoding;
  EXPECT_EQ(stats.num_spec_tokens, 3U);
  EXPECT_EQ(stats.num_drafts, 2U);
  EXPECT_EQ(stats.num_draft_tokens, 5U);
  EXPECT_EQ(stats.num_accepted_tokens, 2U);
  EXPECT_EQ(stats.num_accepted_per_position, (std::vector<std::uint64_t>{1, 1, 0}));
  EXPECT_FALSE(d.step().stats->spec_decoding) << "a step without draft tokens has no statistics";
}

TEST(Drafts, ReportStatisticsOfDraftTokensOnce) {
  CoreDriver d(speculative_config());
  d.add(1, 5, 20);
  d.step();
  set_drafts(d, 1, {50, 51, 52});
  ASSERT_TRUE(d.step().stats->spec_decoding);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(d.core->make_stats()->spec_decoding) << i;
}

TEST(Drafts, Trap29DropDraftTokensOfPrefillChunksAndUnknownRequests) {
  CoreConfig config = speculative_config();
  config.scheduler.max_num_batched_tokens = 8;
  CoreDriver d(config);
  d.add(1, 12, 20);
  d.step();
  set_drafts(d, 1, {50});
  EXPECT_TRUE(drafts_of(d, 1).empty());
  set_drafts(d, 9, {50});
  d.step();
  set_drafts(d, 1, {50, 51, 52, 53});
  EXPECT_EQ(drafts_of(d, 1), (Tokens{50, 51, 52})) << "a step has room for three draft tokens";
}

TEST(Drafts, KeepOnlyLeadingDraftTokensThatFitTheGrammar) {
  ScriptedGrammar grammar;
  CoreDriver d(speculative_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  d.add(2, 5, 20);
  d.step();
  EXPECT_EQ(grammar.log, std::vector<std::string>{"accept 1 [40]"}) << "only requests with a grammar call it";
  set_drafts(d, 1, {50, 200, 51});
  set_drafts(d, 2, {50, 200, 51});
  EXPECT_EQ(drafts_of(d, 1), Tokens{50});
  EXPECT_EQ(drafts_of(d, 2), (Tokens{50, 200, 51}));
  grammar.not_advancing = {RequestId{1}};
  set_drafts(d, 1, {50, 200, 51});
  EXPECT_EQ(drafts_of(d, 1), (Tokens{50, 200, 51}));
}

TEST(Drafts, PassOnlyTokensUpToTheStopToTheGrammar) {
  ScriptedGrammar grammar;
  CoreDriver d(speculative_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  d.step();
  set_drafts(d, 1, {50, kEos});
  grammar.log.clear();
  d.plan();
  EXPECT_TRUE(d.apply({{1, {50, kEos, 60}}}).updates.at(0).finished);
  EXPECT_EQ(grammar.log, std::vector<std::string>{"accept 1 [50 1]"});
}

TEST(DraftsInPlan, ReplaceThePlaceholders) {
  CoreDriver d(speculative_config(async_config()));
  d.add(1, 5, 20);
  d.plan();
  const StepPlan& plan = d.plan();
  set_drafts_in_plan(d, 1, {50, 51, 52, 53});
  EXPECT_EQ(planned_drafts(plan, 1), (Tokens{50, 51, 52}));
  set_drafts_in_plan(d, 9, {50});
  EXPECT_EQ(planned_drafts(plan, 1), (Tokens{50, 51, 52}));
}

TEST(DraftsInPlan, PadRefusedDraftTokensAndDoNotCountThem) {
  ScriptedGrammar grammar;
  CoreDriver d(speculative_config(async_config()), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  d.plan();
  d.apply();
  const StepPlan& plan = d.plan();
  set_drafts_in_plan(d, 1, {50, 200, 51});
  EXPECT_EQ(planned_drafts(plan, 1), (Tokens{50, -1, -1}));
  const Outcome outcome = d.apply({{1, {50, 60}}});
  ASSERT_TRUE(outcome.stats->spec_decoding);
  EXPECT_EQ(outcome.stats->spec_decoding->num_draft_tokens, 1U);
  EXPECT_EQ(outcome.stats->spec_decoding->num_accepted_tokens, 1U);
}

TEST(DraftsInPlan, ReplaceRefusedDraftTokensWhenSetAgain) {
  ScriptedGrammar grammar;
  CoreDriver d(speculative_config(async_config()), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  d.plan();
  d.apply();
  d.plan();
  set_drafts_in_plan(d, 1, {200, 200, 200});
  set_drafts_in_plan(d, 9, {50});
  EXPECT_EQ(d.apply({{1, {50, 51, 52, 60}}}).stats->spec_decoding.value().num_draft_tokens, 3U) << "the second call refuses no draft token";
}

}  // namespace
}  // namespace quire::test
