// Tests counters and block hashes: prefix lookups, preemptions, statistics, prompt embeddings and block hashes given by the client.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(Counters, CountsQueriedAndFoundTokensOfLookups) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 9);
  d.add(CoreDriver::request(1, prompt, 1));
  d.step();
  d.add(CoreDriver::request(2, prompt, 1));
  const Outcome outcome = d.step();
  const CoreCounters counters = d.core->counters();
  EXPECT_EQ(counters.prefix_query_tokens, 18U);
  EXPECT_EQ(counters.prefix_hit_tokens, 8U);
  EXPECT_EQ(counters.preempted_prefix_query_tokens, 0U);
  EXPECT_EQ(counters.num_steps, 2U);
  EXPECT_EQ(counters.num_scheduled_tokens, 10U);
  EXPECT_EQ(counters.num_blocks, 31U);
  EXPECT_EQ(counters.num_free_blocks, 31U);
  EXPECT_EQ(counters.num_running, 0U);
  EXPECT_EQ(counters.num_unfinished, 0);
  ASSERT_TRUE(outcome.stats);
  EXPECT_EQ(outcome.stats->prefix_cache.requests, 1U) << "counted since the previous statistics";
  EXPECT_EQ(outcome.stats->prefix_cache.queries, 9U);
  EXPECT_EQ(outcome.stats->prefix_cache.hits, 8U);
  EXPECT_EQ(outcome.updates.at(0).num_cached_tokens, 8);
}

TEST(Counters, CountsLookupsOfPreemptedRequestsSeparately) {
  CoreDriver d(sync_config());
  d.add(1, 9, 8);
  d.step();
  ASSERT_FALSE(d.core->reset_prefix_cache(false).value()) << "a request holds blocks";
  ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
  EXPECT_EQ(d.view(1).status, RequestStatus::preempted);
  EXPECT_EQ(d.view(1).num_preemptions, 1U);
  const Outcome outcome = d.step();
  const CoreCounters counters = d.core->counters();
  EXPECT_EQ(counters.num_preemptions, 1U);
  EXPECT_EQ(counters.prefix_query_tokens, 9U);
  EXPECT_EQ(counters.preempted_prefix_query_tokens, 10U);
  EXPECT_EQ(counters.preempted_prefix_hit_tokens, 0U);
  ASSERT_TRUE(outcome.stats);
  EXPECT_TRUE(outcome.stats->prefix_cache.reset);
  EXPECT_EQ(outcome.stats->prefix_cache.preempted_requests, 1U);
  EXPECT_EQ(outcome.stats->prefix_cache.preempted_queries, 10U);
  EXPECT_EQ(outcome.stats->prefix_cache.requests, 0U);
}

TEST(Counters, ReportsStatisticsOnRequest) {
  CoreDriver d(sync_config(5));
  d.add(1, 7, 8);
  d.plan();
  d.add(2, 7, 8);
  const SchedulerStats* stats = d.core->make_stats();
  ASSERT_NE(stats, nullptr);
  EXPECT_EQ(stats->num_running, 1U);
  EXPECT_EQ(stats->num_waiting, 1U);
  EXPECT_DOUBLE_EQ(stats->kv_cache_usage, 0.5);
  EXPECT_EQ(stats->prefix_cache.requests, 1U);
  EXPECT_EQ(d.core->make_stats()->prefix_cache.requests, 0U) << "reported only once";
  d.apply();
}

TEST(Finish, RetiresAFinishedRequestWithItsLastPlan) {
  CoreDriver d(async_config());
  d.add(1, 4, 8);
  d.plan();
  d.plan();
  EXPECT_EQ(d.core->num_outstanding_plans(), 2U);
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::in_flight);
  EXPECT_FALSE(d.known(1));
  EXPECT_FALSE(d.core->has_work());
  const Outcome first = d.apply();
  EXPECT_TRUE(first.updates.empty()) << "its tokens are dropped";
  EXPECT_TRUE(first.retired.empty());
  EXPECT_EQ(d.apply().retired, Ids{1});
  EXPECT_EQ(d.core->num_outstanding_plans(), 0U);
}

std::vector<std::byte> rows(std::uint8_t value, std::size_t num_bytes) {
  return std::vector<std::byte>(num_bytes, std::byte{value});
}

// Returns the number of cached tokens with which the request is admitted.
std::int64_t cached_tokens(CoreDriver& d, const NewRequest& request) {
  d.add(request);
  const Outcome outcome = d.step({{request.id.value, {kEos}}});
  EXPECT_EQ(outcome.updates.size(), 1U);
  return outcome.updates.empty() ? -2 : outcome.updates[0].num_cached_tokens;
}

TEST(BlockHashes, IncludePromptEmbeddings) {
  CoreDriver d(sync_config());
  const Tokens zeros(9, 0);
  const auto ones = rows(1, 18), twos = rows(2, 18);
  NewRequest request = CoreDriver::request(1, zeros, 4);
  request.prompt_embeds = ones;
  EXPECT_EQ(cached_tokens(d, request), 0);
  request.id = RequestId{2};
  EXPECT_EQ(cached_tokens(d, request), 8);
  request.id = RequestId{3};
  request.prompt_embeds = twos;
  EXPECT_EQ(cached_tokens(d, request), 0);
  request.id = RequestId{4};
  auto late = ones;
  late[15] = std::byte{9};  // a byte of token 7, in the second block
  request.prompt_embeds = late;
  EXPECT_EQ(cached_tokens(d, request), 4);
  request.id = RequestId{5};
  late = ones;
  late[8] = std::byte{9};  // the first byte of the second block
  request.prompt_embeds = late;
  EXPECT_EQ(cached_tokens(d, request), 4);
}

TEST(BlockHashes, UseTheHashesGivenWithTheRequest) {
  CoreDriver d(sync_config());
  const std::vector<std::uint8_t> given(64, 0xAB);
  const Tokens prompt = CoreDriver::prompt(1, 9);
  const Tokens other = CoreDriver::prompt(2, 9);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.block_hashes = given;
  EXPECT_EQ(cached_tokens(d, request), 0);
  request.id = RequestId{2};
  request.prompt = other;
  request.block_hashes = std::span(given).first(32);
  d.add(request);
  const auto hashes = d.view(2).block_hashes;
  ASSERT_EQ(hashes.size(), 64U) << "the core hashes the second block";
  EXPECT_TRUE(std::ranges::equal(hashes.first(32), std::span(given).first(32)));
  EXPECT_FALSE(std::ranges::equal(hashes.last(32), std::span(given).first(32)));
  EXPECT_EQ(d.step().updates.at(0).num_cached_tokens, 4);
}

TEST(BlockHashes, SaltsAndAdaptersKeepPrefixesApart) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 9);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  EXPECT_EQ(cached_tokens(d, request), 0);
  request.id = RequestId{2};
  request.cache_salt = "salt";
  EXPECT_EQ(cached_tokens(d, request), 0);
  request.id = RequestId{3};
  request.cache_salt = {};
  request.lora_id = 1;
  request.lora_name = "adapter";
  EXPECT_EQ(cached_tokens(d, request), 0);
  request.id = RequestId{4};
  EXPECT_EQ(cached_tokens(d, request), 8);
  request.id = RequestId{5};
  request.skip_reading_prefix_cache = true;
  EXPECT_EQ(cached_tokens(d, request), 0) << "the request skips the lookup";
  EXPECT_EQ(d.core->counters().prefix_query_tokens, 36U) << "the counters do not include it";
}

TEST(Reset, ReturnsTheAnswerOfTheConnector) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  EXPECT_TRUE(d.core->reset_prefix_cache(false, true).value());
  EXPECT_TRUE(d.core->reset_connector_cache());
  connector.resets = false;
  EXPECT_FALSE(d.core->reset_prefix_cache(false, true).value());
  EXPECT_FALSE(d.core->reset_connector_cache());
  CoreDriver alone(sync_config());
  EXPECT_FALSE(alone.core->reset_connector_cache()) << "the core has no connector";
  EXPECT_TRUE(alone.core->reset_prefix_cache().value());
}

TEST(Reset, FailsWhenAConnectorHoldsBlocks) {
  ScriptedConnector connector;
  connector.keeps_blocks = {RequestId{1}};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 5, 1);
  d.step();
  const auto reset = d.core->reset_prefix_cache(true);
  ASSERT_FALSE(reset.has_value());
  EXPECT_EQ(reset.error().field, "preempt_running");
  EXPECT_FALSE(d.core->reset_prefix_cache(false).value());
}

}  // namespace
}  // namespace quire::test
