// Requests that fail in a step: the errors for their clients, and which blocks the cache forgets. Other requests continue.
#include "engine/requests/live_failures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/recorded_loop.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

using SampleStatus = SampleOutcome::Status;

// Samples token 5, unless the test sets another status for a request. Pooling requests get the vector that the test sets.
class FailingWorker final : public WorkerBase {
 public:
  void start(const StepPlan& plan) override { plan_ = &plan; }
  WorkerResult finish() override {
    Result& result = results_.emplace_back();
    for (const ScheduledRequest& scheduled : plan_->scheduled) {
      if (scheduled.pools) result.requests.push_back({.id = scheduled.id, .pooled = &result.pooled.emplace_back(pooled[scheduled.id])});
      if (!scheduled.samples) continue;
      std::vector<SampleOutcome>& samples = result.samples.emplace_back(1);
      samples[0].status = fails_all ? status : statuses.contains(scheduled.id) ? statuses[scheduled.id] : SampleStatus::ok;
      samples[0].token = samples[0].status == SampleStatus::ok ? 5 : 0;
      for (TokenId token = 5; token < 15; ++token) samples[0].logprobs.entries.push_back({token, -1.0F, 1});
      result.requests.push_back({.id = scheduled.id, .samples = samples});
    }
    result.received = std::exchange(received, {});
    return {.step = {.step = plan_->step,
                     .has_connector_output = true,
                     .finished_receiving = result.received,
                     .failed_receiving = result.received},
            .requests = result.requests};
  }
  [[nodiscard]] std::optional<double> next_transfer_s() const override { return 0.0; }

  std::map<RequestId, SampleStatus> statuses;
  std::map<RequestId, std::vector<float>> pooled;
  bool fails_all = false;  // with `status`
  SampleStatus status = SampleStatus::ok;
  std::vector<RequestId> received;  // requests whose loads fail in the next step

 private:
  struct Result {
    std::deque<std::vector<SampleOutcome>> samples;
    std::deque<std::vector<float>> pooled;
    std::vector<RequestResult> requests;
    std::vector<RequestId> received;
  };
  const StepPlan* plan_ = nullptr;
  std::deque<Result> results_;
};

struct FailingLoop {
  explicit FailingLoop(KvLoadFailurePolicy policy = KvLoadFailurePolicy::recompute) {
    auto made = std::make_unique<FailingWorker>();
    worker = made.get();
    RecordedOptions options;
    options.connector = &connector;
    options.engine.kv_load_failure = policy;
    options.worker = std::move(made);
    bench.emplace(std::move(options));
  }
  test::ScriptedConnector connector;
  FailingWorker* worker = nullptr;
  std::optional<RecordedLoop> bench;
};

constexpr const char* kNotFinite = "the model output for the next token contains NaN or Inf";
constexpr const char* kAllMasked =
    "the grammar, allowed_token_ids, bad_words, logit_bias, min_tokens and penalties leave no token to sample";
constexpr const char* kNotPooled = "the pooled output of the model contains NaN or Inf";
constexpr const char* kNotLoaded = "the KV cache blocks of the prompt could not be loaded";

TEST(LiveFailures, EndOnlyTheRequestsThatFailed) {
  FailingLoop failing;
  RecordedLoop& bench = *failing.bench;
  for (const std::uint64_t id : {1U, 2U, 3U, 4U}) bench.add(id, plain_request(20, 5));
  bench.step();
  failing.worker->statuses = {{{2}, SampleStatus::not_finite}, {{3}, SampleStatus::all_masked}};
  bench.run();
  for (const std::uint64_t id : {1U, 4U}) {
    EXPECT_EQ(bench.sink.end_of({id}).reason, FinishReason::length);
    EXPECT_EQ(bench.sink.of[{id}].size(), 5U);
  }
  const RequestOutput &corrupted = bench.sink.end_of({2}), &masked = bench.sink.end_of({3});
  EXPECT_EQ(corrupted.reason, FinishReason::error);
  EXPECT_EQ(corrupted.error, kNotFinite);
  EXPECT_FALSE(corrupted.refusal.has_value()) << "the client cannot correct it";
  EXPECT_EQ(masked.reason, FinishReason::error);
  EXPECT_EQ(masked.error, kAllMasked);
  ASSERT_TRUE(masked.refusal.has_value());
  EXPECT_EQ(masked.refusal->code, ErrorCode::invalid_argument);
  EXPECT_EQ(masked.refusal->to_string(), std::string(kAllMasked) + "; allow more tokens");
  for (const std::uint64_t id : {2U, 3U}) EXPECT_EQ(bench.sink.of[{id}].size(), 2U) << "one token and the end";
  EXPECT_EQ(bench.calls.forgets, std::vector<RequestId>{{2}}) << "blocks of a masked request are valid";
  ASSERT_EQ(bench.calls.finishes.size(), 2U);
  for (const core_call::Finish& finish : bench.calls.finishes) EXPECT_EQ(finish.status, RequestStatus::finished_error);
  EXPECT_EQ(bench.loop->stats().finished_error, 2U);
  bench.loop->check_all_free();
}

TEST(LiveFailures, EndPoolingRequestsWithAValueThatIsNotFinite) {
  constexpr float kMost = std::numeric_limits<float>::max(), kInf = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<std::vector<float>, bool>> cases = {
      {{0.0F, kMost, -kMost}, true}, {{kInf, 0.0F}, false}, {{0.0F, -kInf}, false}, {{0.0F, std::nanf(""), 0.0F}, false}};
  for (const auto& [vector, is_finite] : cases) {
    FailingLoop failing;
    RecordedLoop& bench = *failing.bench;
    EngineRequest request = make_request(20, 1);
    request.pooling = true;
    failing.worker->pooled[{1}] = vector;
    bench.add(1, request);
    bench.run();
    const RequestOutput& end = bench.sink.end_of({1});
    EXPECT_EQ(end.reason, is_finite ? FinishReason::stop : FinishReason::error);
    EXPECT_EQ(end.error, is_finite ? "" : kNotPooled);
    EXPECT_EQ(end.pooled, is_finite ? vector : std::vector<float>{});
    EXPECT_EQ(bench.calls.forgets.size(), is_finite ? 0U : 1U);
    EXPECT_FALSE(end.refusal.has_value());
    bench.loop->check_all_free();
  }
}

TEST(LiveFailures, EndTheWholeSearchOfAFailedBeam) {
  for (const SampleStatus status : {SampleStatus::not_finite, SampleStatus::all_masked}) {
    const bool is_masked = status == SampleStatus::all_masked;
    FailingLoop failing;
    RecordedLoop& bench = *failing.bench;
    EngineRequest search = plain_request(20, 9);
    search.n = 3;
    search.beam_search.emplace();
    bench.add(1, search);
    bench.step();
    failing.worker->status = status;
    failing.worker->fails_all = true;
    bench.run();
    for (const std::uint64_t id : {1U, 2U, 3U}) {
      const RequestOutput& end = bench.sink.end_of({id});
      EXPECT_EQ(bench.sink.of[{id}].size(), 1U);
      EXPECT_EQ(end.reason, FinishReason::error);
      EXPECT_EQ(end.error, is_masked ? kAllMasked : kNotFinite);
      EXPECT_EQ(end.refusal.has_value(), is_masked);
    }
    EXPECT_EQ(bench.calls.forgets.empty(), is_masked);
    for (const RequestId id : bench.calls.forgets) EXPECT_TRUE(BeamSearches::is_beam(id));
    bench.loop->check_all_free();
  }
}

TEST(LiveFailures, EndRequestsWhoseBlocksCannotBeLoaded) {
  FailingLoop failing(KvLoadFailurePolicy::fail);
  RecordedLoop& bench = *failing.bench;
  failing.connector.matches[{1}] = {.num_tokens = 16, .load_async = true};
  EngineRequest request = plain_request(20, 3);
  request.n = 3;
  bench.add(1, request);
  bench.add(7, plain_request(20, 3, 60));
  bench.step();
  EXPECT_EQ(bench.loop->stats().num_waiting, 3U) << "the request that loads, and its siblings";
  failing.worker->received = {{1}};
  bench.run();
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    const RequestOutput& end = bench.sink.end_of({id});
    EXPECT_EQ(bench.sink.of[{id}].size(), 1U);
    EXPECT_EQ(end.reason, FinishReason::error);
    EXPECT_EQ(end.error, kNotLoaded) << "siblings would share the blocks";
  }
  EXPECT_EQ(bench.sink.end_of({7}).reason, FinishReason::length);
  EXPECT_EQ(bench.calls.adds.size(), 2U);
  EXPECT_EQ(bench.loop->stats().num_waiting, 0U);
  EXPECT_EQ(bench.loop->stats().finished_error, 3U);
  bench.loop->check_all_free();
}

TEST(LiveFailures, EndASearchWhoseBlocksCannotBeLoaded) {
  FailingLoop failing(KvLoadFailurePolicy::fail);
  RecordedLoop& bench = *failing.bench;
  failing.connector.answer = {.num_tokens = 16, .load_async = true};
  EngineRequest search = plain_request(20, 9);
  search.n = 2;
  search.beam_search.emplace();
  bench.add(1, search);
  bench.step();
  failing.worker->received = {bench.calls.adds.at(0).id};
  bench.run();
  for (const std::uint64_t id : {1U, 2U}) EXPECT_EQ(bench.sink.end_of({id}).error, kNotLoaded);
  bench.loop->check_all_free();
}

}  // namespace
}  // namespace quire
