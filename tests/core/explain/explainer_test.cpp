// Tests explanations of scripted requests: each cause of a miss once, and which requests are remembered.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/explain/explained.h"
#include "core/schedule/moves/one_is_swapped.h"

namespace quire::test {
namespace {

Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(Explainer, ShowsARequestsNameOnlyToItsOwnTenant) {
  for (const bool same : {true, false}) {
    Explained e(sync_config());
    for (const std::uint64_t id : {1U, 2U}) {
      const Tokens prompt = CoreDriver::prompt(id, 5);
      NewRequest request = CoreDriver::request(id, prompt, 9);
      request.name = id == 1 ? "one" : "two";
      const RequestTags tags{.tenant = id == 1 || same ? "a" : "b"};
      request.tags = &tags;
      e.driver.add(request);
    }
    e.driver.plan();
    e.explainer.on_event(
        {.what = EventKind::preempted, .cause = EventCause::lack_of_blocks, .owner = RequestId{2}, .beneficiary = RequestId{1}});
    EXPECT_EQ(e.of(1).tenant, "a");
    EXPECT_EQ(e.of(2).tenant, same ? "a" : "b");
    EXPECT_EQ(e.of(2).preemptions.at(0).by, RequestId{1});
    EXPECT_EQ(e.of(2).preemptions.at(0).by_name, same ? "one" : "");
  }
}

// One tenant stores documents. The prompts of another tenant share some blocks and tokens with them. The explanation must not reveal how
// many tokens are shared beyond the cached blocks.
TEST(Explainer, RevealsNothingAboutBlocksOfAnotherTenant) {
  std::uint64_t next_id = 1;
  const auto run = [&next_id](Explained& e, const char* tenant, const Tokens& prompt) {
    const std::uint64_t id = next_id++;
    NewRequest request = CoreDriver::request(id, prompt, 1);
    const RequestTags tags{.tenant = tenant};
    request.tags = &tags;
    e.driver.add(request);
    e.driver.step({{id, {90}}});
    return e.of(id);
  };
  for (std::uint32_t num_shared = 0; num_shared <= 3 * kBlockSize; ++num_shared) {
    Explained e(sync_config(60));
    const Tokens document = CoreDriver::prompt(7, 4 * kBlockSize);
    Tokens guess(document.begin(), document.begin() + num_shared);
    guess.resize(4 * kBlockSize + 1, 3);
    run(e, "owner", document);
    const RequestExplanation facts = run(e, "other", guess);
    const std::uint32_t num_found = num_shared / kBlockSize * kBlockSize;
    EXPECT_EQ(facts.num_cached, num_found) << "the cache is shared, so found tokens count as cached";
    EXPECT_EQ(Explained::missed(facts, MissCause::never_stored), 4 * kBlockSize - num_found) << num_shared;
    for (const MissFact& miss : facts.misses) EXPECT_FALSE(miss.differs_at.has_value()) << num_shared;
    // Prompts of the same tenant are still compared.
    Tokens own = guess;
    own[3 * kBlockSize + 1] = 4;
    const RequestExplanation again = run(e, "other", own);
    EXPECT_EQ(again.misses.at(0).differs_at, 3 * kBlockSize + 1) << num_shared;
    // Blocks of another tenant count as the finder's once they are found. No other blocks do.
    const auto names_of = [&](const Tokens& prompt) {
      const NewRequest request = CoreDriver::request(99, prompt, 1);
      e.driver.add(request);
      const auto hashes = e.driver.view(99).block_hashes;
      const std::vector<std::uint8_t> names(hashes.begin(), hashes.end());
      e.driver.core->finish(RequestId{99}, RequestStatus::finished_aborted, {});
      return names;
    };
    const auto names = names_of(document);
    EXPECT_EQ(e.explainer.tenant_prefix("owner", names).num_cached_tokens, 4 * kBlockSize);
    EXPECT_EQ(e.explainer.tenant_prefix("other", names).num_known_tokens, num_found);
    EXPECT_EQ(e.explainer.tenant_prefix("third", names).num_known_tokens, 0U);
  }
}

TEST(Explainer, TheFirstRequestWaitsForAStepAndFindsNothing) {
  Explained e(sync_config());
  e.driver.add(1, 10, 3);
  e.driver.plan();
  const RequestExplanation facts = e.of(1);
  EXPECT_EQ(facts.queued_s, 0.0);
  EXPECT_EQ(facts.admitted_s, 1.0);
  ASSERT_EQ(facts.waits.size(), 1U);
  EXPECT_EQ(facts.waits[0].cause, EventCause::none);
  EXPECT_EQ(facts.waits[0].seconds, 1.0);
  EXPECT_EQ(facts.num_tokens, 10U);
  EXPECT_EQ(facts.num_missed, 10U);
  EXPECT_EQ(Explained::missed(facts, MissCause::never_stored), 8U);
  EXPECT_EQ(Explained::missed(facts, MissCause::partial_block), 2U);
}

TEST(Explainer, NamesTheRequestThatEvictedTheMissedBlocks) {
  Explained e(sync_config(5));  // 4 blocks
  e.driver.add(1, 8, 1);
  e.driver.step();
  e.driver.add(2, 14, 1);  // uses all four blocks
  e.driver.step();
  const StepId lost_in = e.of(2).admitted_step;
  e.driver.add(e.driver.request(3, joined(CoreDriver::prompt(1, 8), {7, 7}), 1));
  e.driver.plan();
  const RequestExplanation facts = e.of(3);
  EXPECT_EQ(Explained::missed(facts, MissCause::evicted), 8U);
  EXPECT_EQ(Explained::missed(facts, MissCause::partial_block), 2U);
  ASSERT_EQ(facts.misses.size(), 2U);
  EXPECT_EQ(facts.misses[0].by, RequestId{2});
  EXPECT_EQ(facts.misses[0].step, lost_in);
  EXPECT_EQ(facts.misses[0].first_token, 0U);
}

TEST(Explainer, ReportsWhereAPromptDiverges) {
  Explained e(sync_config());
  e.driver.add(1, 12, 1);
  e.driver.step();
  Tokens other = CoreDriver::prompt(1, 12);
  other[6] = 7;
  e.driver.add(e.driver.request(2, joined(other, {8, 8}), 1));
  e.driver.plan();
  const RequestExplanation facts = e.of(2);
  EXPECT_EQ(facts.num_cached, 4U);
  EXPECT_EQ(Explained::missed(facts, MissCause::diverged), 4U);
  EXPECT_EQ(Explained::missed(facts, MissCause::never_stored), 4U);
  ASSERT_FALSE(facts.misses.empty());
  EXPECT_EQ(facts.misses[0].differs_at, 6U);
  EXPECT_EQ(facts.misses[0].before, Tokens(other.begin(), other.begin() + 6));
  EXPECT_EQ(facts.misses[0].own.front(), 7);
  EXPECT_EQ(facts.misses[0].stored.front(), 1006);
  EXPECT_EQ(facts.misses[0].stored.size(), 2U) << "the stored tokens reach to the end of the block";
}

TEST(Explainer, ReportsADivergenceInTheLastBlockOfAPrompt) {
  Explained e(sync_config());
  e.driver.add(1, 8, 1);
  e.driver.step();
  Tokens other = CoreDriver::prompt(1, 8);
  other[7] = 7;
  e.driver.add(e.driver.request(2, other, 1));
  e.driver.plan();
  ASSERT_EQ(e.of(2).misses.size(), 1U);
  EXPECT_EQ(e.of(2).misses[0].cause, MissCause::diverged);
  EXPECT_EQ(e.of(2).misses[0].differs_at, 7U);
  EXPECT_EQ(e.of(2).misses[0].num_tokens, 4U);
}

TEST(Explainer, ReportsTheLastTokenOfACachedPromptAsComputed) {
  Explained e(sync_config());
  e.driver.add(1, 8, 1);
  e.driver.step();
  e.driver.add(e.driver.request(2, CoreDriver::prompt(1, 8), 1));
  e.driver.plan();
  const RequestExplanation facts = e.of(2);
  EXPECT_EQ(facts.num_cached, 4U);
  EXPECT_EQ(Explained::missed(facts, MissCause::last_token), 4U);
}

TEST(Explainer, ReportsAResetAsTheCause) {
  Explained e(sync_config());
  e.driver.add(1, 8, 1);
  e.driver.step();
  ASSERT_TRUE(e.driver.core->reset_prefix_cache().value());
  e.driver.add(e.driver.request(2, joined(CoreDriver::prompt(1, 8), {7}), 1));
  e.driver.plan();
  EXPECT_EQ(Explained::missed(e.of(2), MissCause::reset), 8U);
}

TEST(Explainer, ReportsForWhichRequestAPreemptionHappenedAndItsCost) {
  Explained e(sync_config(7));  // 6 blocks
  e.driver.add(1, 12, 12);
  e.driver.add(2, 11, 12);
  for (int i = 0; i < 4 && e.of(2).num_preemptions == 0; ++i) e.driver.step();
  const RequestExplanation facts = e.of(2);
  ASSERT_EQ(facts.num_preemptions, 1U);
  EXPECT_EQ(facts.preemptions[0].cause, EventCause::lack_of_blocks);
  EXPECT_EQ(facts.preemptions[0].by, RequestId{1});
  EXPECT_EQ(facts.preemptions[0].num_missing_blocks, 1U);
  EXPECT_EQ(facts.preemptions[0].num_lost_tokens, 11U);
  EXPECT_GT(Explained::seconds(facts.later_waits, EventCause::preempting), 0.0);
}

TEST(Explainer, CountsLostTokensLessThoseTheCacheStillHasWhenARequestRunsAgain) {
  Explained e(sync_config(7));  // 6 blocks
  e.driver.add(1, 12, 12);
  e.driver.add(2, 11, 12);
  for (int i = 0; i < 4 && e.of(2).num_preemptions == 0; ++i) e.driver.step();
  ASSERT_EQ(e.of(2).preemptions.at(0).num_lost_tokens, 11U) << "all tokens count as lost until the request runs again";
  e.driver.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = e.driver.now});
  e.driver.plan();
  const RequestExplanation facts = e.of(2);
  ASSERT_EQ(facts.num_preemptions, 1U);
  EXPECT_FALSE(facts.preemptions[0].swapped_out);
  EXPECT_EQ(facts.preemptions[0].num_lost_tokens, 3U) << "two whole blocks were still cached";
}

TEST(Explainer, CountsNoLostTokensForARequestThatWasSwappedOutAndIn) {
  Explained e(swapping_config());
  e.driver.add(1, 8, 8);
  e.driver.add(2, 7, 8);
  e.driver.step();
  e.driver.plan();
  ASSERT_EQ(e.of(2).num_preemptions, 1U);
  EXPECT_TRUE(e.of(2).preemptions[0].swapped_out);
  EXPECT_EQ(e.of(2).preemptions[0].num_lost_tokens, 0U);
  std::vector<TransferCompletion> over{{.transfer = TransferId{0}}};
  e.driver.apply({}, {.completions = over});
  e.driver.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = e.driver.now});
  e.driver.plan();
  over[0].transfer = TransferId{1};
  e.driver.apply({}, {.completions = over});
  ASSERT_EQ(e.driver.core->counters().num_swapped_in, 1U);
  e.driver.step();
  ASSERT_EQ(e.driver.view(2).status, RequestStatus::running);
  EXPECT_TRUE(e.of(2).preemptions[0].swapped_out);
  EXPECT_EQ(e.of(2).preemptions[0].num_lost_tokens, 0U);
}

TEST(Explainer, CountsTokensAsLostWhenTheSwapFails) {
  Explained e(swapping_config());
  e.driver.add(1, 8, 8);
  e.driver.add(2, 7, 8);
  e.driver.step();
  e.driver.plan();
  const std::vector<TransferCompletion> over{{.transfer = TransferId{0}, .outcome = TransferOutcome::failed}};
  e.driver.apply({}, {.completions = over});
  ASSERT_EQ(e.driver.core->counters().num_swaps_lost, 1U);
  EXPECT_FALSE(e.of(2).preemptions.at(0).swapped_out);
  EXPECT_EQ(e.of(2).preemptions[0].num_lost_tokens, 7U);
}

TEST(Explainer, CountsTheSharedTokensOfAForkedChild) {
  Explained e(sync_config());
  e.driver.add(1, 9, 6);
  e.driver.step();
  ASSERT_TRUE(e.driver.core->fork(RequestId{1}, {.id = RequestId{2}}, {.now = e.driver.now}).has_value());
  e.driver.plan();
  const RequestExplanation facts = e.of(2);
  EXPECT_EQ(facts.num_shared, 9U);
  EXPECT_EQ(facts.num_shared + facts.num_missed, facts.num_tokens);
}

TEST(Explainer, RemembersALimitedNumberOfEndedRequestsByName) {
  CoreConfig config = sync_config();
  ExplainOptions options = ExplainOptions::of(config, 2);
  Explainer explainer(options);
  CoreDriver driver(config, {.events = &explainer});
  explainer.follow(*driver.core);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, 4);
    NewRequest request = CoreDriver::request(id, prompt, 1);
    request.name = id < 3 ? "chat" : "other";
    driver.add(request);
    driver.step();
  }
  EXPECT_FALSE(explainer.explain(RequestId{1}).has_value());
  ASSERT_TRUE(explainer.explain(RequestId{2}).has_value());
  EXPECT_TRUE(explainer.explain(RequestId{2})->ended_s.has_value());
  EXPECT_EQ(explainer.find("chat"), std::vector{RequestId{2}});
}

TEST(Explainer, RemembersAsManyEndedRequestsAsConfigured) {
  for (const std::uint32_t num_ended : {0U, 1U, 2U}) {
    const CoreConfig config = sync_config();
    Explainer explainer(ExplainOptions::of(config, num_ended));
    CoreDriver d(config, {.events = &explainer});
    explainer.follow(*d.core);
    for (std::uint64_t id = 1; id <= 3; ++id) {
      d.add(id, 5, 1);
      d.step();
      ASSERT_FALSE(d.known(id));
    }
    d.add(4, 5, 9);
    d.step();
    for (std::uint64_t id = 1; id <= 3; ++id)
      EXPECT_EQ(explainer.explain(RequestId{id}, d.now).has_value(), id + num_ended > 3) << id << " of " << num_ended;
    EXPECT_TRUE(explainer.explain(RequestId{4}, d.now).has_value()) << "request 4 is running";
  }
}

TEST(Explainer, NamesARequestThatHasEndedSince) {
  Explained e(sync_config());
  for (const std::uint64_t id : {1U, 2U}) {
    const Tokens prompt = CoreDriver::prompt(id, 5);
    NewRequest request = CoreDriver::request(id, prompt, id == 1 ? 1 : 9);
    request.name = id == 1 ? "one" : "two";
    e.driver.add(request);
  }
  e.driver.plan();
  e.explainer.on_event(
      {.what = EventKind::preempted, .cause = EventCause::lack_of_blocks, .owner = RequestId{2}, .beneficiary = RequestId{1}});
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(e.of(2).preemptions.size(), 1U);
    EXPECT_EQ(e.of(2).preemptions[0].by_name, "one");
    if (i == 0) e.driver.apply();
    EXPECT_FALSE(e.driver.known(1));
  }
}

TEST(Explainer, KeepsTheFirstPreemptionsAndCountsAll) {
  Explained e(sync_config());
  e.driver.add(1, 8, 9);
  e.driver.plan();
  const std::size_t most = RequestExplanation::kMaxPreemptionFacts;
  for (std::uint32_t i = 0; i < most + 4; ++i)
    e.explainer.on_event({.what = EventKind::preempted, .cause = EventCause::lack_of_blocks, .owner = RequestId{1}, .amount = i});
  const RequestExplanation facts = e.of(1);
  EXPECT_EQ(facts.num_preemptions, most + 4);
  ASSERT_EQ(facts.preemptions.size(), most);
  for (std::uint32_t i = 0; i < most; ++i) EXPECT_EQ(facts.preemptions[i].num_missing_blocks, i);
}

// The explained unit is the largest block size of all groups, except for groups with one state per sequence.
TEST(Explainer, ExplainsTheLargestBlockSizeOfSeveralGroups) {
  CoreConfig config = sync_config(41);
  EXPECT_EQ(ExplainOptions::of(config).block_size, kBlockSize);
  const auto with = [&](std::uint32_t block_size) {
    CoreConfig more = config;
    FullAttentionSpec spec;
    spec.block_size = block_size;
    more.kv.groups.push_back({.layer_names = {"more"}, .spec = spec, .layer_specs = {}});
    return ExplainOptions::of(more, 7);
  };
  EXPECT_EQ(with(8).block_size, 8U);
  EXPECT_EQ(with(8).hash_block_size, kBlockSize);
  EXPECT_EQ(with(8).num_ended, 7U);
  EXPECT_EQ(with(8).num_blocks, 41U + 65536U);
  EXPECT_EQ(with(10).block_size, kBlockSize) << "not a multiple of the hash block size";
  EXPECT_EQ(with(96).block_size, 96U);
  EXPECT_EQ(with(100).block_size, kBlockSize) << "one block covers the longest request";
  config.kv.num_blocks = 70000;
  EXPECT_EQ(ExplainOptions::of(config).num_blocks, 140000U);
}

TEST(Explainer, FindsRunningAndEndedRequestsByName) {
  Explained e(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 5);
  for (const std::uint64_t id : {7U, 2U, 5U, 3U}) {
    NewRequest request = CoreDriver::request(id, prompt, id == 5 ? 9 : 1);
    request.name = id == 3 ? "other" : "one";
    e.driver.add(request);
    if (id == 7) e.driver.step();
  }
  e.driver.step();
  using Ids = std::vector<RequestId>;
  EXPECT_EQ(e.explainer.find("one"), (Ids{{2}, {5}, {7}}));
  EXPECT_EQ(e.explainer.find("other"), (Ids{{3}}));
  EXPECT_TRUE(e.explainer.find("nobody").empty());
}

}  // namespace
}  // namespace quire::test
