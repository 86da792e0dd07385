// What a child has of its parent, and who copies which block.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "core/schedule/requests/forking.h"
#include "quire/base/events.h"

namespace quire {
namespace {

using test::async_config;
using test::CoreDriver;
using test::fork;
using test::Harness;
using test::Ids;
using test::must_fork;
using test::scheduled_ids;
using test::sync_config;
using test::Tokens;

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

TEST(Forks, AChildHasANameAndASamplingOfItsOwn) {
  CoreDriver d(sync_config());
  const SamplingParams first, second;
  const Tokens tokens = CoreDriver::prompt(1, 9);
  NewRequest request = CoreDriver::request(1, tokens, 20);
  request.name = "parent";
  request.sampling = &first;
  d.add(request);
  d.step();
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .name = "child", .arrival_time = 2.0, .sampling = &second}).has_value());
  EXPECT_EQ(d.view(1).name, "parent");
  EXPECT_EQ(d.view(2).name, "child");
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.admitted[0].id, RequestId{2});
  EXPECT_EQ(plan.admitted[0].sampling, &second);
  d.apply();
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

}  // namespace
}  // namespace quire
