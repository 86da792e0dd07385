// How the beams of a search reach the core, and what the clients of its answers get.
#include "engine/requests/live_searches.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/recorded_loop.h"
#include "engine/spelling_model.h"

namespace quire {
namespace {

EngineRequest wide_search(std::uint32_t width, std::uint32_t max_tokens, std::optional<std::uint32_t> logprobs = {}) {
  EngineRequest request = plain_request(20, max_tokens);
  request.n = width;
  request.beam_search.emplace();
  request.sampling.logprobs = logprobs;
  request.sampling.temperature = 0.7F;
  request.sampling.top_k = 3;
  request.sampling.seed = 5;
  request.name = "name";
  request.priority = 3;
  request.cache_salt = "salt";
  request.tags = {.tenant = "tenant", .is_background = true, .retention_s = 9, .hints = {{"a", "b"}}};
  return request;
}

void expect_beam(const AddCall& call) {
  EXPECT_TRUE(BeamSearches::is_beam(call.id));
  EXPECT_EQ(call.name, "name");
  EXPECT_EQ(call.priority, 3);
  EXPECT_EQ(call.cache_salt, "salt");
  EXPECT_EQ(call.tags, (RequestTags{.tenant = "tenant", .is_background = true, .retention_s = 9, .hints = {{"a", "b"}}}));
  EXPECT_EQ(call.max_tokens, 1U) << "a beam waits after each token";
  EXPECT_TRUE(call.resumable);
  EXPECT_TRUE(call.eos_ids.empty()) << "the search decides where an answer ends";
  EXPECT_EQ(call.sampling.temperature, 0.0F);
  EXPECT_EQ(call.sampling.top_k, 0);
  EXPECT_FALSE(call.structured_output || call.pooling);
}

TEST(LiveSearches, AddTheirFirstBeamToTheCore) {
  for (const auto& [width, given, wanted] : {std::tuple(3U, std::optional<std::uint32_t>{}, 6U), std::tuple(2U, std::optional(9U), 9U),
                                             std::tuple(5U, std::optional(4U), 10U)}) {
    const auto resident = std::make_shared<const ResidentAdapter>(ResidentAdapter{.id = 4, .content_id = "content", .weights = nullptr});
    const auto adapters = std::make_shared<LiveAdapters>();
    RecordedLoop bench({.adapters = adapters});
    Submission submission = bench.submission(7, wide_search(width, 5, given), 1.5);
    submission.adapter = std::make_shared<const AdapterLease>(AdapterLease{"name", resident});
    BlockHash key;
    key.bytes[0] = 5;
    submission.block_keys = {key};
    bench.clock->now = 2.0;
    bench.loop->add(std::move(submission));
    ASSERT_EQ(bench.calls.adds.size(), 1U);
    const AddCall& call = bench.calls.adds[0];
    expect_beam(call);
    EXPECT_EQ(call.prompt, wide_search(1, 1).prompt);
    EXPECT_EQ(call.arrival_s, 1.5);
    EXPECT_EQ(call.now_s, 2.0);
    EXPECT_EQ(call.lora_id, 4);
    EXPECT_EQ(call.lora_name, "content");
    EXPECT_EQ(call.block_hashes, std::vector<std::uint8_t>(key.bytes.begin(), key.bytes.end()));
    EXPECT_EQ(call.sampling.logprobs, wanted) << "twice the width, or as many as the client wants";
    bench.end();
  }
}

TEST(LiveSearches, ForkTheNextBeamsAndEndTheirParents) {
  RecordedLoop bench;
  bench.add(7, wide_search(3, 4), 1.5);
  const RequestId first = bench.calls.adds.at(0).id;
  bench.step();
  ASSERT_EQ(bench.calls.forks.size(), 3U);
  std::set<std::uint64_t> beams{first.value};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const ForkCall& call = bench.calls.forks[i];
    EXPECT_EQ(call.parent, first);
    EXPECT_TRUE(BeamSearches::is_beam(call.id));
    EXPECT_TRUE(beams.insert(call.id.value).second);
    EXPECT_EQ(call.arrival_s, 1.5 + 1e-6 * i) << "beams with equal times could preempt each other";
    EXPECT_EQ(call.now_s, 1.0);
    EXPECT_EQ(call.num_tokens, 20U) << "without the sampled token";
    EXPECT_TRUE(call.next_token.has_value());
    EXPECT_EQ(call.max_tokens, 2U) << "the chosen token and the next one";
    EXPECT_TRUE(call.resumable);
    EXPECT_FALSE(call.waits_for_input);
    EXPECT_EQ(call.sampling.temperature, 0.0F);
    EXPECT_EQ(call.sampling.logprobs, 6U);
  }
  ASSERT_EQ(bench.calls.finishes.size(), 1U);
  EXPECT_EQ(bench.calls.finishes[0].id, first);
  EXPECT_EQ(bench.calls.finishes[0].status, RequestStatus::finished_stopped);
  EXPECT_EQ(bench.calls.finishes[0].input.now, 1.0);
  bench.step();
  ASSERT_EQ(bench.calls.forks.size(), 6U);
  for (std::size_t i = 3; i < 6; ++i) {
    EXPECT_EQ(bench.calls.forks[i].num_tokens, 21U);
    EXPECT_EQ(bench.calls.forks[i].max_tokens, 3U);
  }
  EXPECT_EQ(bench.calls.finishes.size(), 4U);
  bench.run();
  EXPECT_EQ(bench.calls.forks.size(), 9U);
  EXPECT_EQ(bench.calls.finishes.size(), 10U) << "each beam ends once";
  EXPECT_EQ(bench.calls.adds.size(), 1U);
  bench.loop->check_all_free();
}

TEST(LiveSearches, CountOneAdmissionAndEachAnswer) {
  RecordedLoop bench;
  bench.add(1, plain_request(20, 1));
  bench.run();
  bench.loop->clear_changes();
  EngineRequest search = wide_search(3, 4, 1);
  search.cache_salt = "";
  bench.add(7, search, -1.0);
  bench.step();
  const std::vector<RequestId> answers = {{7}, {8}, {9}};
  EXPECT_EQ(std::vector<RequestId>(bench.loop->admitted().begin(), bench.loop->admitted().end()), answers);
  bench.run();
  EXPECT_EQ(bench.loop->admitted().size(), 3U) << "later beams are no new requests";
  EXPECT_EQ(std::vector<RequestId>(bench.loop->ended().begin(), bench.loop->ended().end()), answers);
  const EngineStats& stats = bench.loop->stats();
  EXPECT_EQ(stats.queue_time_s.counts.back(), 2U);
  EXPECT_EQ(stats.queue_time_s.sum, 2.0);
  EXPECT_EQ(stats.prompt_tokens_cached, 16U);
  EXPECT_EQ(stats.finished_length, 4U);
  EXPECT_EQ(stats.generation_tokens, 1U + 1U + 3U * 3U);
  for (const RequestId id : answers) {
    const RequestOutput& end = bench.sink.end_of(id);
    EXPECT_EQ(end.num_cached_tokens, 16U);
    EXPECT_EQ(end.tokens.size(), 4U);
    EXPECT_EQ(end.logprobs.size(), 4U);
    EXPECT_EQ(end.logprobs.at(0).entries.size(), 2U);
    EXPECT_EQ(end.stop_token, -1);
    EXPECT_EQ(end.reason, FinishReason::length);
  }
  bench.loop->check_all_free();
}

// Two beams do not fit into the cache together.
TEST(LiveSearches, AddBeamsAgainWhoseBlocksOthersNeeded) {
  RecordedOptions options;
  options.engine.cache.num_blocks = 7;
  options.engine.cache.enable_prefix_caching = false;
  options.engine.scheduler.max_model_len = 96;
  RecordedLoop bench(std::move(options));
  EngineRequest search = wide_search(5, 40);
  search.prompt = plain_request(46, 1).prompt;
  bench.add(7, search, 1.5);
  bench.run();
  ASSERT_GT(bench.calls.adds.size(), 1U);
  std::set<double> arrivals;
  for (const AddCall& call : bench.calls.adds) {
    expect_beam(call);
    EXPECT_EQ(std::vector<TokenId>(call.prompt.begin(), call.prompt.begin() + 46), search.prompt);
    arrivals.insert(call.arrival_s);
  }
  EXPECT_GT(bench.calls.adds.back().prompt.size(), 46U) << "the outputs of the beam follow the prompt";
  EXPECT_GT(arrivals.size(), 1U);
  for (const double arrival_s : arrivals) EXPECT_TRUE(arrival_s >= 1.5 && arrival_s <= 1.5 + 4e-6) << arrival_s;
  for (std::uint64_t id = 7; id < 12; ++id) EXPECT_EQ(bench.sink.end_of({id}).tokens.size(), 40U);
  bench.loop->check_all_free();
}

TEST(LiveSearches, EndTogether) {
  RecordedLoop bench;
  bench.add(7, wide_search(3, 9));
  bench.step(2);
  bench.loop->finish({8}, FinishReason::stop);
  bench.loop->finish({7}, FinishReason::abort);
  bench.loop->deliver();
  for (std::uint64_t id = 7; id < 10; ++id) {
    EXPECT_EQ(bench.sink.of[{id}].size(), 1U);
    EXPECT_EQ(bench.sink.end_of({id}).reason, FinishReason::stop);
  }
  EXPECT_EQ(bench.loop->stats().finished_stop, 3U);
  bench.run();
  bench.loop->check_all_free();
}

TEST(LiveSearches, ReportAnswersThatTheGrammarDoesNotAllow) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  quire::Setup setup;  // not the fixture's Setup
  setup.model = spelling_model();
  Collector sink;
  const auto engine = start(kModes[0], std::move(setup));
  EngineRequest request{.prompt = {5, 6, 7}, .sampling = {}};
  request.n = 4;
  request.beam_search.emplace();
  request.structured_output = StructuredOutput{.kind = StructuredOutput::Kind::regex, .text = "yes|no"};
  RequestId first = engine->submit(request, sink).value();
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Collector::Answer answer = sink.wait({first.value + i});
    EXPECT_EQ(answer.error, i < 2 ? "" : "n: the grammar allows only 2 answers; request at most that many");
    EXPECT_EQ(answer.reason == FinishReason::error, i >= 2);
    EXPECT_EQ(answer.stop_token, i < 2 ? kEos : -1);
  }
  request.structured_output->text = "(";
  first = engine->submit(request, sink).value();
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Collector::Answer answer = sink.wait({first.value + i});
    EXPECT_EQ(answer.reason, FinishReason::error);
    ASSERT_TRUE(answer.refusal.has_value());
    EXPECT_EQ(answer.refusal->field, "structured_output");
    EXPECT_EQ(answer.error, answer.refusal->to_string());
  }
  EXPECT_EQ(engine->stop(10.0), 0U);
}

}  // namespace
}  // namespace quire
