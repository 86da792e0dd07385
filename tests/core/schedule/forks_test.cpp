// What a child has of its parent, who copies which block, and what is refused.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "quire/events.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

using test::async_config;
using test::CoreDriver;
using test::Harness;
using test::Ids;
using test::scheduled_ids;
using test::sync_config;
using test::Tokens;

Result<void> fork(CoreDriver& d, std::uint64_t parent, const ForkRequest& child) {
  return d.core->fork(RequestId{parent}, child, {.now = d.now});
}

void must_fork(CoreDriver& d, std::uint64_t parent, std::uint64_t child) {
  const auto forked = fork(d, parent, {.id = RequestId{child}, .arrival_time = static_cast<double>(child)});
  ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
  d.core->check_invariants();
}

TEST(Forks, AChildHasTheTagsOfItsParentButTheJob) {
  CoreDriver d(sync_config());
  const Tokens tokens = CoreDriver::prompt(1, 9);
  NewRequest request = CoreDriver::request(1, tokens, 20);
  const RequestTags tags{.job = "job", .tool = "ls", .tenant = "a", .hints = {{"size", "small"}}};
  request.tags = &tags;
  d.add(request);
  d.step();
  EXPECT_EQ(*d.view(1).tags, tags);
  must_fork(d, 1, 2);
  EXPECT_EQ(*d.view(2).tags, (RequestTags{.tenant = "a", .hints = {{"size", "small"}}}));
}

TEST(Forks, AChildComputesNothingThatItsParentHas) {
  CoreDriver d(sync_config());
  d.add(1, 9, 20);
  d.step();
  d.step();  // 11 tokens, 10 of them computed: two full blocks, and two tokens in the third
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, d.view(1).num_computed_tokens);
  EXPECT_EQ(d.blocks(2), d.blocks(1));
  EXPECT_EQ(d.core->counters().num_free_blocks, 31U - 3U) << "nothing is taken";
  const std::vector<BlockId> shared = d.blocks(1);

  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({1, 2}));
  EXPECT_EQ(d.scheduled(2), 1U);
  ASSERT_EQ(plan.copies.size(), 1U) << "the parent writes first, and the child last";
  EXPECT_EQ(plan.copies[0].id, RequestId{1});
  EXPECT_EQ(plan.copies[0].source, shared[2]);
  EXPECT_EQ(plan.copies[0].destination, d.blocks(1)[2]);
  ASSERT_EQ(plan.table_deltas.size(), 2U);
  EXPECT_EQ(plan.table_deltas[0].update, TableUpdate::replace_one);
  EXPECT_EQ(plan.table_deltas[0].index, 2U);
  EXPECT_EQ(plan.table_deltas[0].blocks[0], d.blocks(1)[2]);
  EXPECT_EQ(plan.table_deltas[1].update, TableUpdate::replace_all);
  EXPECT_EQ(d.blocks(2), shared);
  EXPECT_EQ(plan.admitted[0].num_prompt_tokens, 9U);
  EXPECT_EQ(plan.admitted[0].tokens.size(), 11U);
  const auto outcome = d.apply();
  EXPECT_EQ(outcome.first_admissions, Ids({2}));
  EXPECT_EQ(outcome.updates[1].num_cached_tokens, 10);
  EXPECT_TRUE(d.plan().copies.empty());
  d.apply();
  EXPECT_EQ(d.core->counters().num_forks, 1U);
  EXPECT_EQ(d.core->counters().num_copied_blocks, 1U);
}

// A fork in the middle of a prefill: the blocks that the child fills itself are named by the same embeddings.
TEST(Forks, AChildHasTheEmbeddingsOfItsParentsPrompt) {
  CoreConfig config = sync_config();
  config.scheduler.long_prefill_token_threshold = 4;
  CoreDriver d(config);
  const Tokens zeros(13, 0);
  const std::vector<std::byte> rows(26, std::byte{7});
  NewRequest request = CoreDriver::request(1, zeros, 4);
  request.prompt_embeds = rows;
  d.add(request);
  d.step();
  must_fork(d, 1, 2);
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  for (int i = 0; i < 3; ++i) d.step();
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  request.id = RequestId{3};
  d.add(request);
  d.plan();
  EXPECT_EQ(d.view(3).num_computed_tokens, 12U + d.scheduled(3));
  d.apply();
}

TEST(Forks, OfFullBlocksNothingIsCopied) {
  CoreDriver d(sync_config());
  d.add(1, 8, 20);
  d.step();
  for (std::uint64_t child = 2; child < 6; ++child) must_fork(d, 1, child);
  EXPECT_TRUE(d.plan().copies.empty());
  EXPECT_EQ(d.core->ref_count(d.blocks(1)[1]), 5U);
  d.apply();
}

TEST(Forks, AllSharersButTheLastCopy) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  d.step();
  for (std::uint64_t child = 2; child < 6; ++child) must_fork(d, 1, child);
  EXPECT_EQ(d.plan().copies.size(), 4U);
  d.apply();
}

// The parent is gone, and others may find what it wrote behind the fork: its name goes before the child writes over it.
TEST(Forks, TheLastSharerWritesInPlaceAndTheBlockLosesItsName) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  for (int i = 0; i < 4; ++i) d.step();
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .num_tokens = 6}).has_value());
  const std::vector<BlockId> shared = d.blocks(2);
  ASSERT_EQ(shared.size(), 2U);
  EXPECT_TRUE(d.cached(shared[1]));
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  const StepPlan& plan = d.plan();
  EXPECT_TRUE(plan.copies.empty());
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 5U);
  EXPECT_EQ(d.blocks(2), shared);
  EXPECT_FALSE(d.cached(shared[1]));
  d.apply();
}

// Placeholders are not the child's; what is in flight of known tokens counts as computed, because it is written before the next plan runs.
TEST(Forks, WithAPlanInFlightTheChildHasTheTokensThatAreKnown) {
  CoreDriver d(async_config());
  d.add(1, 9, 20);
  d.plan();
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).tokens.size(), 9U);
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U) << "all but the one to sample after";
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({1, 2}));
  EXPECT_TRUE(plan.copies.empty()) << "two full blocks";
  d.apply();
  must_fork(d, 1, 3);
  EXPECT_EQ(d.view(3).tokens.size(), 10U);
  EXPECT_EQ(d.view(3).num_computed_tokens, 9U);
  d.apply();
}

TEST(Forks, OfAPrefillTheChildHasWhatIsComputed) {
  CoreConfig config = sync_config();
  config.scheduler.long_prefill_token_threshold = 6;
  CoreDriver d(config);
  d.add(1, 20, 4);
  d.step();
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, 6U);
  EXPECT_EQ(d.plan().copies.size(), 1U);
  d.apply();
  for (int i = 0; i < 12; ++i) d.step();
  EXPECT_FALSE(d.known(1) || d.known(2));
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Forks, OfOneThatHasComputedNothingTheChildIsAnyRequest) {
  CoreDriver d(sync_config());
  d.add(1, 9, 4);
  must_fork(d, 1, 2);
  EXPECT_TRUE(d.blocks(2).empty());
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.step();
  EXPECT_EQ(d.outputs(1).size(), 1U);
}

// 1 lacks a block: the child that waits gives up its share before anybody is preempted, and is computed again.
TEST(Forks, AShareGivesWayBeforeARunningRequest) {
  CoreConfig config = sync_config(6);
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  d.add(1, 6, 14);
  d.step();
  must_fork(d, 1, 2);
  while (d.known(1)) {
    EXPECT_TRUE(d.plan().preempted.empty());
    d.apply();
  }
  EXPECT_EQ(d.core->counters().num_copied_blocks, 1U);
  while (d.core->has_work()) d.step();
  EXPECT_TRUE(d.core->all_blocks_free());
}

// All blocks are held by children that wait: the first of them takes what the others give up.
TEST(Forks, SharesAloneDoNotStandInTheWay) {
  CoreConfig config = sync_config(7);
  CoreDriver d(config);
  d.add(1, 14, 8);
  d.step();
  must_fork(d, 1, 2);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{3}, .arrival_time = 3.0, .max_tokens = 8}).has_value());
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  for (int i = 0; i < 40 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Forks, APreemptedChildIsComputedAgain) {
  CoreConfig config = sync_config(7);
  config.scheduler.reserve_full_isl = false;
  config.prefix_cache.enable_prefix_caching = false;
  CoreDriver d(config);
  d.add(1, 6, 12);
  d.step();
  must_fork(d, 1, 2);
  for (int i = 0; i < 60 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_GT(d.core->counters().num_preemptions, 0U);
  EXPECT_TRUE(d.core->all_blocks_free());
}

// 1 is scheduled with a copy, 3 lacks blocks even when 2 has given up its share, and 1 is taken back: nothing is copied for it.
TEST(Forks, ACopyOfOneThatGivesWayLeavesThePlan) {
  CoreConfig config = test::priority_config(6);
  config.scheduler.reserve_full_isl = false;
  config.scheduler.long_prefill_token_threshold = 8;
  CoreDriver d(config);
  d.add_with_priority(1, 6, 5, 1.0, 8);
  d.step();
  d.add_with_priority(3, 16, 0, 2.0, 2);
  d.step();
  must_fork(d, 1, 2);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({3}));
  EXPECT_EQ(test::values(plan.preempted), Ids({1}));
  EXPECT_TRUE(plan.copies.empty());
  EXPECT_TRUE(d.blocks(2).empty());
  d.apply();
  EXPECT_EQ(d.core->counters().num_copied_blocks, 0U);
}

class ForkEvents : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (event.what == EventKind::forked || event.what == EventKind::unshared) all.push_back(event);
  }
  std::vector<Event> all;
};

TEST(Forks, AreToldAsEvents) {
  ForkEvents events;
  CoreDriver d(sync_config(), {.events = &events});
  d.add(1, 6, 20);
  d.step();
  must_fork(d, 1, 2);
  EXPECT_TRUE(*d.core->reset_prefix_cache(true));
  ASSERT_EQ(events.all.size(), 2U);
  EXPECT_EQ(events.all[0].what, EventKind::forked);
  EXPECT_EQ(events.all[0].owner, RequestId{1});
  EXPECT_EQ(events.all[0].beneficiary, RequestId{2});
  EXPECT_EQ(events.all[0].amount, 2U) << "blocks";
  EXPECT_EQ(events.all[1].what, EventKind::unshared);
  EXPECT_EQ(events.all[1].cause, EventCause::ended_by_host);
  EXPECT_EQ(events.all[1].owner, RequestId{2});
  EXPECT_EQ(events.all[1].amount, 2U);
}

TEST(Forks, AResetPutsSharesBack) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  d.step();
  must_fork(d, 1, 2);
  EXPECT_FALSE(*d.core->reset_prefix_cache());
  EXPECT_TRUE(*d.core->reset_prefix_cache(true));
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.step();
  EXPECT_EQ(d.outputs(2).size(), 2U);
}

// Between two inputs of a session.
TEST(Forks, OfASessionTheChildIsAnOrdinaryRequest) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest session = CoreDriver::request(1, prompt, 3);
  session.resumable = true;
  d.add(session);
  for (int i = 0; i < 3; ++i) d.step();
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .max_tokens = 6}).has_value());
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U);
  const Tokens more = {7, 8};
  const SessionInput input{.tokens = more};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &input).has_value());
  for (int i = 0; i < 3; ++i) d.step();
  EXPECT_FALSE(d.known(2)) << "it has its six outputs";
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
}

// Instead of the token that the parent has sampled: the two part there, and what comes before is in blocks of both.
TEST(Forks, AChildMayGoOnWithATokenOfItsOwn) {
  CoreDriver d(sync_config());
  d.add(1, 9, 20);
  d.step();
  d.step();  // 11 tokens, 10 of them computed
  const auto forked = fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .num_tokens = 10, .next_token = 77});
  ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
  Tokens tokens(d.view(1).tokens.begin(), d.view(1).tokens.end() - 1);
  tokens.push_back(77);
  EXPECT_EQ(Tokens(d.view(2).tokens.begin(), d.view(2).tokens.end()), tokens);
  EXPECT_EQ(d.view(2).num_computed_tokens, 10U);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(d.scheduled(2), 1U);
  EXPECT_EQ(plan.copies.size(), 1U);
  EXPECT_EQ(plan.admitted[0].tokens.back(), 77);
  d.apply();
  EXPECT_EQ(d.outputs(2).size(), 3U);
}

// The block that the token fills has the name that any request with these tokens gives it.
TEST(Forks, ATokenOfItsOwnMayFillABlock) {
  CoreDriver d(sync_config());
  d.add(1, 7, 20);
  d.step();
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .num_tokens = 7, .next_token = 77}).has_value());
  d.step();
  Tokens same(d.view(2).tokens.begin(), d.view(2).tokens.begin() + 8);
  same.push_back(5);
  d.add(CoreDriver::request(3, same, 4));
  EXPECT_EQ(d.plan().scheduled.back().num_computed_tokens, 8U);
  d.apply();
}

TEST(Forks, ATokenOfItsOwnCountsAsAnOutput) {
  CoreDriver d(sync_config());
  d.add(1, 6, 10);
  d.step();
  d.step();
  const ForkRequest child{.id = RequestId{2}, .arrival_time = 2.0, .next_token = 77, .max_tokens = 3};
  const auto refused = fork(d, 1, child);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "max_tokens");
  EXPECT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .next_token = 77, .max_tokens = 4}).has_value());
  d.step();
  EXPECT_FALSE(d.known(2)) << "it has its four outputs";
}

// As in a beam search: each waits after one token, its children go on with tokens that somebody chose, and it ends.
TEST(Forks, ASessionThatWaitsHasChildrenThatAreSessions) {
  for (const bool async : {false, true}) {
    CoreDriver d(async ? async_config() : sync_config());
    const Tokens prompt = CoreDriver::prompt(1, 10);
    NewRequest session = CoreDriver::request(1, prompt, 1);
    session.resumable = true;
    d.add(session);
    d.step();
    std::uint64_t parent = 1;
    for (std::uint32_t step = 0; step < 6; ++step) {
      ASSERT_EQ(d.view(parent).status, RequestStatus::waiting_for_input);
      EXPECT_EQ(d.plan().num_scheduled_tokens, 0U) << "nothing runs on with what nobody chose";
      d.apply();
      for (const std::uint64_t child : {parent + 1, parent + 2}) {
        const auto forked = fork(d, parent,
                                 {.id = RequestId{child},
                                  .arrival_time = static_cast<double>(child),
                                  .num_tokens = 10 + step,
                                  .next_token = static_cast<TokenId>(child),
                                  .max_tokens = step + 2,
                                  .resumable = true});
        ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
      }
      d.core->finish(RequestId{parent}, RequestStatus::finished_stopped);
      if (parent > 1) d.core->finish(RequestId{parent - 1}, RequestStatus::finished_stopped);
      d.core->check_invariants();
      const StepPlan& plan = d.plan();
      EXPECT_EQ(plan.num_scheduled_tokens, 2U) << "one token of each";
      EXPECT_EQ(plan.copies.size(), (10 + step) % 4 == 0 ? 0U : 1U);
      d.apply();
      parent += 2;
    }
    for (const std::uint64_t id : {parent, parent - 1}) d.core->finish(RequestId{id}, RequestStatus::finished_stopped);
    d.step();
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

TEST(Forks, ContentIsRightInWindows) {
  for (const std::uint32_t window : {3U, 4U, 9U}) {
    CoreConfig config = test::small_config(64);
    SlidingWindowSpec spec;
    spec.block_size = config.block_size;
    spec.sliding_window = window;
    config.kv.groups.push_back({.layer_names = {}, .spec = spec, .layer_specs = {}});
    Harness h(config);
    h.worker.use_windows({0, window});
    h.add(1, CoreDriver::prompt(0, 13), 30);
    for (std::uint64_t child = 2; child < 12; ++child) {
      h.step();
      ASSERT_TRUE(h.fork(RequestId{child - 1}, {.id = RequestId{child}, .arrival_time = static_cast<double>(child)}, child).has_value());
    }
    EXPECT_GT(h.worker.num_copies, 0U);
    h.run_to_end();
  }
}

struct Refused {
  const char* field;
  ErrorCode code;
};

void expect_refused(CoreDriver& d, std::uint64_t parent, const ForkRequest& child, Refused refused) {
  const auto forked = fork(d, parent, child);
  ASSERT_FALSE(forked.has_value());
  EXPECT_EQ(forked.error().field, refused.field) << forked.error().to_string();
  EXPECT_EQ(forked.error().code, refused.code) << forked.error().to_string();
  d.core->check_invariants();
}

TEST(Forks, AChildIsHeldToItsParentsGrammar) {
  test::ScriptedGrammar grammar;
  CoreDriver d(sync_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  d.step();
  d.step();
  grammar.log.clear();
  must_fork(d, 1, 2);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{3}, .arrival_time = 3.0, .num_tokens = 7, .next_token = 77}).has_value());
  EXPECT_EQ(grammar.log, (std::vector<std::string>{"fork 1 2 at 2", "fork 1 3 at 1", "accept 3 [77]"}));
  EXPECT_TRUE(d.plan().has_structured_output);
  EXPECT_EQ(d.scheduled(2), 1U);
  d.apply();
  const std::string accepted = fmt::format("accept 2 [{}]", d.outputs(2).back());
  EXPECT_EQ(std::ranges::count(grammar.log, accepted), 1) << accepted;
  grammar.not_forking = {RequestId{1}};
  expect_refused(d, 1, {.id = RequestId{4}}, {"parent", ErrorCode::unsupported});
  EXPECT_FALSE(d.known(4));
}

TEST(Forks, AChildWaitsForAGrammarAsItsParentDoes) {
  test::ScriptedGrammar grammar;
  grammar.not_ready = {RequestId{1}, RequestId{2}};
  CoreDriver d(sync_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  must_fork(d, 1, 2);
  EXPECT_TRUE(d.plan().scheduled.empty());
  d.apply();
  grammar.not_ready.clear();
  EXPECT_EQ(d.plan().scheduled.size(), 2U);
  d.apply();
}

TEST(Forks, BadInputIsRefused) {
  CoreDriver d(sync_config());
  d.add(1, 6, 10);
  d.add(2, 6, 1);
  d.step();
  d.step();
  const RequestId child{9};
  expect_refused(d, 7, {.id = child}, {"parent", ErrorCode::not_found});
  expect_refused(d, 1, {.id = RequestId{1}}, {"id", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .num_tokens = 5}, {"num_tokens", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .num_tokens = 9}, {"num_tokens", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .max_tokens = 2}, {"max_tokens", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .max_tokens = 0}, {"max_tokens", ErrorCode::invalid_argument});
  EXPECT_TRUE(fork(d, 1, {.id = child, .max_tokens = 3}).has_value());
}

TEST(Forks, OfOneThatHasEndedIsRefused) {
  CoreConfig config = async_config();
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.plan();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  expect_refused(d, 1, {.id = RequestId{2}}, {"parent", ErrorCode::invalid_argument});
  d.apply();
}

TEST(Forks, AFamilyIsBounded) {
  CoreConfig config = sync_config();
  config.limits.max_fork_family = 4;
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.step();
  for (std::uint64_t child = 2; child < 5; ++child) must_fork(d, child - 1, child);  // forks of forks
  expect_refused(d, 4, {.id = RequestId{5}}, {"limits.max_fork_family", ErrorCode::overloaded});
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  must_fork(d, 4, 5);
  while (d.core->has_work()) d.step();
}

TEST(Forks, TheWaitingQueueIsBounded) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_waiting = 1;
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.step();
  must_fork(d, 1, 2);
  expect_refused(d, 1, {.id = RequestId{3}}, {"max_num_waiting", ErrorCode::overloaded});
}

TEST(Forks, WhatCannotBeSharedIsRefused) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest pooling = CoreDriver::request(1, prompt, 1);
  pooling.pooling = true;
  d.add(pooling);
  expect_refused(d, 1, {.id = RequestId{2}}, {"parent", ErrorCode::unsupported});
}

}  // namespace
}  // namespace quire
