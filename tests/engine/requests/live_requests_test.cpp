// How requests reach the core, what their last outputs report, and how they are counted.
#include "engine/requests/live_requests.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/recorded_loop.h"

namespace quire {
namespace {

std::vector<RequestId> listed(std::span<const RequestId> ids) {
  return {ids.begin(), ids.end()};
}

TEST(LiveRequests, PassEachFieldToTheCore) {
  RecordedLoop bench;
  EngineRequest request = make_request(20, 5);
  request.name = "name";
  request.priority = -4;
  request.cache_salt = "salt";
  request.tags = {.job = "job",
                  .is_last_step = true,
                  .tool = "tool",
                  .tenant = "tenant",
                  .is_background = true,
                  .retention_s = 9,
                  .hints = {{"a", "b"}}};
  request.sampling.min_tokens = 2;
  request.sampling.stop_token_ids = {3, 4};
  request.sampling.repetition = {.min_pattern_tokens = 2, .max_pattern_tokens = 3, .min_count = 4};
  request.sampling.top_k = 9;
  request.sampling.seed = 77;
  Submission submission = bench.submission(7, request, -1.5);
  BlockHash key;
  key.bytes[0] = 5;
  submission.block_keys = {key};
  bench.clock->now = 2.0;
  bench.loop->add(std::move(submission));

  const AddCall& call = bench.calls.adds.at(0);
  EXPECT_EQ(call.id, RequestId{7});
  EXPECT_EQ(call.name, "name");
  EXPECT_EQ(call.prompt, request.prompt);
  EXPECT_EQ(call.priority, -4);
  EXPECT_EQ(call.arrival_s, -1.5);
  EXPECT_EQ(call.now_s, 2.0);
  EXPECT_EQ(call.max_tokens, 5U);
  EXPECT_EQ(call.min_tokens, 2U);
  EXPECT_EQ(call.eos_ids, std::vector<TokenId>{kEos});
  EXPECT_EQ(call.stop_token_ids, request.sampling.stop_token_ids);
  EXPECT_EQ(call.repetition, request.sampling.repetition);
  EXPECT_FALSE(call.pooling || call.structured_output || call.resumable);
  EXPECT_EQ(call.lora_id, 0);
  EXPECT_EQ(call.cache_salt, "salt");
  EXPECT_EQ(call.block_hashes, std::vector<std::uint8_t>(key.bytes.begin(), key.bytes.end()));
  EXPECT_EQ(call.tags, request.tags);
  EXPECT_EQ(call.sampling.top_k, 9);
  EXPECT_EQ(call.sampling.seed, 77U);
  bench.end();
}

TEST(LiveRequests, PassTheirKindToTheCore) {
  RecordedLoop bench;
  EngineRequest pooling = make_request(20, 1), session = make_request(20, 5);
  pooling.pooling = session.session = true;
  bench.add(1, pooling);
  bench.add(2, session);
  bench.add(3, plain_request(20, 5));
  EXPECT_TRUE(bench.calls.adds.at(0).pooling);
  EXPECT_FALSE(bench.calls.adds.at(0).resumable);
  EXPECT_TRUE(bench.calls.adds.at(1).resumable);
  EXPECT_FALSE(bench.calls.adds.at(1).pooling);
  EXPECT_TRUE(bench.calls.adds.at(2).eos_ids.empty()) << "the request ignores EOS";
  bench.end();
}

TEST(LiveRequests, ReadNoCacheIfAllRowsOfThePromptAreNeeded) {
  RecordedLoop bench;
  std::vector<EngineRequest> requests(5, plain_request(20, 5));
  requests[1].sampling.prompt_logprobs = 0;
  requests[2].sampling.routed_experts = true;
  requests[3].pooling = requests[4].pooling = true;
  requests[3].sampling.pooling.kind = PoolingKind::mean;
  for (std::uint64_t i = 0; i < requests.size(); ++i) bench.add(i + 1, requests[i]);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const bool needs_all = i >= 1 && i <= 3;
    EXPECT_EQ(bench.calls.adds.at(i).skips_prefix_cache, needs_all) << i;
    EXPECT_EQ(bench.calls.adds.at(i).loads_nothing, needs_all) << i;
  }
  bench.end();
}

TEST(LiveRequests, EndInTheCoreWithTheStatusOfTheirReason) {
  RecordedLoop bench;
  bench.clock->now = 3.0;
  std::uint64_t id = 0;
  for (const auto& [reason, status] :
       {std::pair(FinishReason::stop, RequestStatus::finished_stopped), std::pair(FinishReason::length, RequestStatus::finished_length),
        std::pair(FinishReason::abort, RequestStatus::finished_aborted), std::pair(FinishReason::error, RequestStatus::finished_error),
        std::pair(FinishReason::repetition, RequestStatus::finished_repetition)}) {
    bench.add(++id, plain_request(20, 5));
    bench.loop->finish({id}, reason);
    bench.loop->deliver();
    EXPECT_EQ(bench.calls.finishes.back().id, RequestId{id});
    EXPECT_EQ(bench.calls.finishes.back().status, status);
    EXPECT_EQ(bench.calls.finishes.back().input.now, 3.0);
    EXPECT_EQ(bench.sink.end_of({id}).reason, reason);
  }
  bench.run();
  const EngineStats& stats = bench.loop->stats();
  for (const std::uint64_t count :
       {stats.finished_stop, stats.finished_length, stats.finished_abort, stats.finished_error, stats.finished_repetition})
    EXPECT_EQ(count, 1U);
  EXPECT_EQ(stats.e2e_latency_s.sum, 15.0) << "each arrived three seconds before";
  bench.loop->check_all_free();
}

TEST(LiveRequests, HaveSeedsThatDependOnTheEnginesSeedAndTheirId) {
  const auto seeds_of = [](std::uint64_t seed) {
    RecordedLoop bench({.seed = seed});
    for (const std::uint64_t id : {1U, 2U, 3U}) bench.add(id, plain_request(5, 2));
    std::vector<std::uint64_t> seeds;
    for (const AddCall& call : bench.calls.adds) seeds.push_back(call.sampling.seed.value());
    bench.end();
    return seeds;
  };
  const auto first = seeds_of(1), second = seeds_of(2);
  EXPECT_EQ(first, seeds_of(1));
  std::set<std::uint64_t> distinct(first.begin(), first.end());
  distinct.insert(second.begin(), second.end());
  EXPECT_EQ(distinct.size(), 6U);
}

TEST(LiveRequests, ReportTheirWaitAndTheirCachedTokensInTheLastOutput) {
  RecordedLoop bench;
  bench.add(1, plain_request(20, 1));
  bench.run();
  EXPECT_EQ(bench.clock->now, 1.0);
  bench.add(2, plain_request(20, 50), -1.0);
  bench.step(3);
  bench.loop->finish({2}, FinishReason::stop);
  bench.run();
  const RequestOutput& last = bench.sink.end_of({2});
  EXPECT_EQ(last.waited_s, 2.0);
  EXPECT_EQ(last.num_cached_tokens, 16U);
  EXPECT_EQ(last.reason, FinishReason::stop);
  EXPECT_EQ(last.error, "");
  EXPECT_FALSE(last.refusal.has_value());
  EXPECT_TRUE(last.tokens.empty());
  const EngineStats& stats = bench.loop->stats();
  EXPECT_EQ(stats.queue_time_s.sum, 2.0);
  EXPECT_EQ(stats.time_to_first_token_s.sum, 1.0 + 3.0);
  EXPECT_EQ(stats.inter_token_latency_s.sum, 2.0);
  EXPECT_EQ(stats.inter_token_latency_s.counts.back(), 2U);
  EXPECT_EQ(stats.e2e_latency_s.sum, 1.0 + 5.0);
  EXPECT_EQ(stats.prompt_tokens, 40U);
  EXPECT_EQ(stats.prompt_tokens_cached, 16U);
  EXPECT_EQ(stats.generation_tokens, 4U);
}

TEST(LiveRequests, ListTheirChangesUntilTheyAreCleared) {
  RecordedLoop bench;
  bench.add(1, plain_request(20, 1));
  bench.add(2, plain_request(20, 3));
  EXPECT_TRUE(bench.loop->admitted().empty());
  bench.step();
  const std::vector<RequestId> both = {{1}, {2}};
  EXPECT_EQ(listed(bench.loop->admitted()), both);
  EXPECT_EQ(listed(bench.loop->prefilled()), both);
  EXPECT_EQ(listed(bench.loop->ended()), std::vector<RequestId>{{1}});
  bench.loop->clear_changes();
  bench.step();
  EXPECT_TRUE(bench.loop->admitted().empty());
  EXPECT_TRUE(bench.loop->prefilled().empty()) << "only the first token counts";
  EXPECT_TRUE(bench.loop->ended().empty());
  bench.step();
  EXPECT_EQ(listed(bench.loop->ended()), std::vector<RequestId>{{2}});
  bench.loop->clear_changes();
  EXPECT_TRUE(bench.loop->ended().empty());
  bench.end();
}

TEST(LiveRequests, CountTheFirstTokenOnceAtAnyTime) {
  RecordedLoop bench;
  bench.clock->now = -1.0;
  bench.add(1, plain_request(20, 3), -1.0);
  bench.run();
  const EngineStats& stats = bench.loop->stats();
  EXPECT_EQ(stats.time_to_first_token_s.counts.back(), 1U);
  EXPECT_EQ(stats.time_to_first_token_s.sum, 1.0);
  EXPECT_EQ(stats.inter_token_latency_s.sum, 2.0);
  bench.end();
}

TEST(LiveRequests, KeepTheFunctionThatNamesTheirToolUntilTheirEnd) {
  RecordedLoop bench;
  const auto state = std::make_shared<int>(0);
  EngineRequest request = plain_request(20, 2);
  request.tool_name_function = [state](std::span<const TokenId> /*outputs*/) { return std::string("ls"); };
  bench.add(1, std::move(request));
  EXPECT_EQ(state.use_count(), 2);
  bench.run();
  EXPECT_EQ(state.use_count(), 1);
  bench.end();
}

TEST(LiveRequests, EndTogetherInTheOrderOfTheirIds) {
  RecordedLoop bench;
  for (const std::uint64_t id : {3U, 1U, 5U, 2U, 4U}) bench.add(id, plain_request(20, 5));
  bench.loop->finish({2}, FinishReason::abort);
  EXPECT_EQ(bench.loop->abort_all(), 4U) << "one has ended before";
  EXPECT_EQ(listed(bench.loop->ended()), (std::vector<RequestId>{{2}, {1}, {3}, {4}, {5}}));
  bench.end();
}

TEST(LiveRequests, AreCountedForTheirAdapter) {
  const auto resident = std::make_shared<const ResidentAdapter>(ResidentAdapter{.id = 4, .content_id = "content", .weights = nullptr});
  const auto adapters = std::make_shared<LiveAdapters>();
  {
    RecordedLoop bench({.adapters = adapters});
    const auto add = [&](std::uint64_t id, std::uint32_t n, const char* name) {
      EngineRequest request = plain_request(20, 2);
      request.n = n;
      Submission submission = bench.submission(id, request);
      submission.adapter = std::make_shared<const AdapterLease>(AdapterLease{name, resident});
      bench.loop->add(std::move(submission));
    };
    using Names = std::vector<std::string>;
    add(1, 2, "a");
    add(5, 1, "b");
    EXPECT_EQ(bench.calls.adds.at(0).lora_id, 4);
    EXPECT_EQ(bench.calls.adds.at(0).lora_name, "content");
    EXPECT_EQ(bench.loop->stats().waiting_adapters, (Names{"a", "b"}));
    EXPECT_EQ(bench.loop->stats().running_adapters, Names{});
    bench.loop->finish({5}, FinishReason::abort);
    EXPECT_EQ(bench.loop->stats().waiting_adapters, Names{"a"}) << "it ended before it ran";
    bench.step();
    EXPECT_EQ(bench.loop->stats().waiting_adapters, Names{"a"}) << "the second answer";
    EXPECT_EQ(bench.loop->stats().running_adapters, Names{"a"});
    bench.step();
    EXPECT_EQ(bench.loop->stats().waiting_adapters, Names{});
    EXPECT_EQ(bench.loop->stats().running_adapters, Names{"a"});
    bench.loop->fork({.parent = {2}, .first = {9}, .options = {.n = 1}, .sink = &bench.sink});
    EXPECT_EQ(bench.loop->stats().waiting_adapters, Names{"a"}) << "a child has the adapter of its parent";
    bench.run();
    EXPECT_EQ(bench.loop->stats().running_adapters, Names{});
    bench.loop->check_all_free();
    EXPECT_EQ(resident.use_count(), 1) << "no request holds the adapter any more";
  }
}

}  // namespace
}  // namespace quire
