// Tests the results of a run: percentiles, goodput, groups of failures, the timeline, and their JSON.
#include "traffic/figures.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "traffic/report.h"

namespace quire {
namespace {

using End = RequestRecord::End;

RequestRecord completed(double sent_s, double ttft_s, std::vector<float> gaps_s, std::uint32_t output_tokens) {
  RequestRecord record{.sent_s = sent_s, .ttft_s = ttft_s, .latency_s = ttft_s, .prompt_tokens = 10, .output_tokens = output_tokens};
  for (const float gap_s : gaps_s) record.latency_s += static_cast<double>(gap_s);
  record.gaps_s = std::move(gaps_s);
  record.has_usage = true;
  record.end = End::completed;
  return record;
}

RequestRecord failed(std::string reason) {
  RequestRecord record{.sent_s = 0.0};
  record.end = End::failed;
  record.failure = std::move(reason);
  return record;
}

TEST(TrafficFigures, HaveTheDefinitionsOfVllm) {
  TrafficResult result{.records = {completed(0.0, 0.1, {0.02F, 0.04F}, 3), completed(1.0, 0.3, {}, 1), completed(1.0, 0.2, {0.1F}, 11)},
                       .duration_s = 2.0,
                       .peak_concurrency = 2};
  const TrafficFigures figures = figures_of(result, {});
  EXPECT_EQ(figures.num_completed, 3U);
  EXPECT_EQ(figures.input_tokens, 30U);
  EXPECT_EQ(figures.output_tokens, 15U);
  EXPECT_EQ(figures.per_s(figures.output_tokens), 7.5);
  EXPECT_NEAR(figures.ttft_ms.values.mean, 200.0, 1e-6);
  EXPECT_NEAR(figures.ttft_ms.values.p50, 200.0, 1e-6);
  EXPECT_NEAR(figures.ttft_ms.values.p90, 280.0, 1e-6) << "percentiles are interpolated as in numpy";
  EXPECT_NEAR(figures.ttft_ms.values.p99, 298.0, 1e-6);
  EXPECT_NEAR(figures.ttft_ms.deviation, 81.649658, 1e-5);
  EXPECT_EQ(figures.tpot_ms.values.count, 2U) << "a request with one token has no TPOT";
  EXPECT_NEAR(figures.tpot_ms.values.mean, (30.0 + 10.0) / 2, 1e-5);
  EXPECT_EQ(figures.itl_ms.values.count, 3U);
  EXPECT_NEAR(figures.itl_ms.values.max, 100.0, 1e-4);
  EXPECT_NEAR(figures.e2el_ms.values.p50, 300.0, 1e-4);
  EXPECT_NEAR(figures.max_output_tokens_per_s, 12.0, 1e-9);
  EXPECT_FALSE(figures.goodput_per_s);
  EXPECT_TRUE(figures.has_usage);
  EXPECT_FALSE(figures.has_cached_tokens);
}

TEST(TrafficFigures, GoodputNeedsAllLimits) {
  const TrafficResult result{.records = {completed(0.0, 0.1, {0.05F}, 2), completed(0.0, 0.1, {0.2F}, 2), completed(0.0, 0.9, {}, 1),
                                         completed(0.0, 0.1, {}, 1), failed("x")},
                             .duration_s = 2.0,
                             .peak_concurrency = 1};
  EXPECT_EQ(figures_of(result, {.ttft_ms = 100.0}).goodput_per_s, 1.5);
  EXPECT_EQ(figures_of(result, {.tpot_ms = 60.0}).goodput_per_s, 1.5) << "the TPOT of one token is 0";
  EXPECT_EQ(figures_of(result, {.ttft_ms = 100.0, .tpot_ms = 60.0}).goodput_per_s, 1.0);
  EXPECT_EQ(figures_of(result, {.e2el_ms = 120.0}).goodput_per_s, 0.5);
}

TEST(TrafficFigures, GroupFailuresThatDifferOnlyInNumbers) {
  TrafficResult result{.records = {failed("429: queue of 128 is full"),
                                   failed("connection refused"),
                                   failed("429: queue of 64 is full"),
                                   failed("503: queue of 64 is full"),
                                   {}},
                       .duration_s = 1.0,
                       .peak_concurrency = 4};
  const TrafficFigures figures = figures_of(result, {});
  EXPECT_EQ(figures.num_failed, 4U);
  EXPECT_EQ(figures.num_unfinished, 1U);
  using Group = std::pair<std::string, std::uint64_t>;
  ASSERT_EQ(figures.failures.size(), 3U);
  EXPECT_EQ(figures.failures[0], (Group{"429: queue of 128 is full", 2}));
  EXPECT_EQ(figures.failures[1], (Group{"503: queue of 64 is full", 1}));
  EXPECT_EQ(figures.failures[2], (Group{"connection refused", 1}));
}

TEST(TrafficFigures, TimelineHasRunningRequestsAndTokens) {
  const TrafficResult result{
      .records = {completed(0.0, 0.5, {}, 4), completed(0.25, 0.625, {}, 1)}, .duration_s = 1.0, .peak_concurrency = 2};
  const TrafficFigures figures = figures_of(result, {});
  ASSERT_EQ(figures.timeline.size(), 4U);
  const auto& line = figures.timeline;
  EXPECT_NEAR(line[0].time_s, 0.25, 1e-9);
  EXPECT_NEAR(line[0].num_running, 1.0, 1e-9);
  EXPECT_NEAR(line[1].num_running, 2.0, 1e-9);
  EXPECT_NEAR(line[2].num_running, 1.0, 1e-9);
  EXPECT_NEAR(line[3].num_running, 0.5, 1e-9);
  EXPECT_NEAR(line[2].output_tokens_per_s, 16.0, 1e-9);
  EXPECT_NEAR(line[3].output_tokens_per_s, 4.0, 1e-9);
}

TEST(TrafficFigures, OfARunWithoutResultsAreZero) {
  const TrafficFigures figures = figures_of({.records = std::vector<RequestRecord>(3), .duration_s = 0.0, .peak_concurrency = 0}, {});
  EXPECT_EQ(figures.num_unfinished, 3U);
  EXPECT_EQ(figures.per_s(7), 0.0);
  EXPECT_EQ(figures.ttft_ms.values.p99, 0.0);
}

TEST(ParseGoodput, ReadsLimits) {
  const std::vector<std::string> texts = {"ttft:500", "tpot:50.5", "e2el:0"};
  const auto limits = parse_goodput(texts);
  ASSERT_TRUE(limits) << limits.error().to_string();
  EXPECT_EQ(limits->ttft_ms, 500.0);
  EXPECT_EQ(limits->tpot_ms, 50.5);
  EXPECT_EQ(limits->e2el_ms, 0.0);
  EXPECT_FALSE(parse_goodput({})->any());
}

TEST(ParseGoodput, NamesTheFlagInErrors) {
  for (const std::string text : {"ttft", "ttft:", "ttft:x", "ttft:5ms", "ttft:-1", "itl:5", ":5", "ttft:nan"}) {
    const auto limits = parse_goodput(std::vector<std::string>{text});
    ASSERT_FALSE(limits) << text;
    EXPECT_EQ(limits.error().field, "--goodput");
    EXPECT_NE(limits.error().message.find("'" + text + "'"), std::string::npos);
  }
  EXPECT_FALSE(parse_goodput(std::vector<std::string>{"ttft:5", "ttft:6"}));
}

TEST(TrafficReport, HasTheKeysOfVllm) {
  const TrafficResult result{
      .records = {completed(0.0, 0.1, {0.05F}, 2), failed("429: \"full\" x")}, .duration_s = 2.0, .peak_concurrency = 1};
  const TrafficFigures figures = figures_of(result, {.ttft_ms = 100.0});
  TrafficSetup setup{.url = "http://h:1", .path = "/v1/completions", .model = "m", .workload = "random", .num_prompts = 2};
  setup.request_rate = INFINITY;
  setup.limits.ttft_ms = 100.0;
  const auto json = boost::json::parse(traffic_json(figures, setup, result.records)).as_object();
  for (const char* key : {"date",
                          "backend",
                          "model_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "p50_tpot_ms",
                          "p90_itl_ms",
                          "p99_e2el_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "start_times",
                          "errors"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json.at("request_rate").as_string(), "inf");
  EXPECT_TRUE(json.at("max_concurrency").is_null());
  EXPECT_TRUE(json.at("total_cached_tokens").is_null());
  EXPECT_EQ(json.at("request_goodput"), boost::json::value(0.5));
  EXPECT_EQ(json.at("failures"), boost::json::parse(R"([{"reason": "429: \"full\" x", "count": 1}])"));
  EXPECT_EQ(json.at("itls").as_array().size(), 2U);
  EXPECT_FALSE(boost::json::parse(traffic_json(figures, setup, {})).as_object().contains("itls"));
  const std::string table = traffic_table(figures, setup);
  EXPECT_NE(table.find("429: \"full\" x   x 1\n"), std::string::npos) << table;
  EXPECT_NE(table.find("TTFT <= 100"), std::string::npos) << table;
}

}  // namespace
}  // namespace quire
