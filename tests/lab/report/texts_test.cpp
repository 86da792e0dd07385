// Tests the texts of reports, line by line, for a result whose values all differ.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "lab/lab_support.h"
#include "lab/report/figures.h"

namespace quire {
namespace {

Distribution distribution_from(double first) {
  return {
      .count = static_cast<std::uint64_t>(first), .mean = first, .p50 = first + 1, .p90 = first + 2, .p99 = first + 3, .max = first + 4};
}

SimulationResult result_of_distinct_values() {
  SimulationResult result;
  result.samples = {{.time_s = 0.5, .num_running = 1, .num_waiting = 2, .kv_usage = 0.25}, {.time_s = 1.5, .num_running = 3}};
  result.num_finished = 40;
  result.num_refused = 3;
  result.num_stuck = 2;
  result.first_refusal = "the prompt is too long";
  result.prompt_tokens = 8000;
  result.output_tokens = 600;
  result.cached_tokens = 2000;
  result.computed_tokens = 8200;
  result.num_steps = 70;
  result.num_preemptions = 5;
  result.num_evicted_blocks = 6;
  result.loaded_tokens = 1000;
  result.loaded_bytes = std::uint64_t{3} << 29U;
  result.stored_bytes = std::uint64_t{5} << 29U;
  result.num_swapped_out = 7;
  result.makespan_s = 20.0;
  result.ttft_s = distribution_from(1.0);
  result.tpot_s = distribution_from(10.0);
  result.end_to_end_s = distribution_from(20.0);
  result.queue_s = distribution_from(30.0);
  result.goodput_per_s = 1.25;
  result.good_share = 0.625;
  result.kv_usage_mean = 0.375;
  result.kv_usage_peak = 0.875;
  result.busy_share = 0.75;
  result.held_by_batch_s = 2.5;
  result.held_by_budget_s = 3.5;
  result.held_by_blocks_s = 4.5;
  return result;
}

SimulationOptions options_with_everything() {
  SimulationOptions options = test::small_options(true);
  options.num_instances = 3;
  options.routing = Routing::by_prefix;
  options.slo_ttft_s = 2.5;
  options.slo_tpot_s = 0.05;
  options.tier.bytes = std::uint64_t{1} << 20U;
  options.tier.swap_bytes = 4096;
  options.kv_bytes_per_token = 64;
  return options;
}

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Compares line by line, so that a failure shows the line.
void expect_lines(const std::string& text, const std::vector<std::string>& expected) {
  EXPECT_TRUE(text.ends_with('\n'));
  const std::vector<std::string> lines = lines_of_text(text);
  for (std::size_t i = 0; i < std::max(lines.size(), expected.size()); ++i)
    EXPECT_EQ(i < lines.size() ? lines[i] : "no line", i < expected.size() ? expected[i] : "no line") << i;
}

TEST(SimulationTable, HasALinePerFigure) {
  expect_lines(
      simulation_table(result_of_distinct_values(), options_with_everything()),
      {"worker: round numbers", "                       mean        p50        p90        p99        max",
       "TTFT ms             1000.00    2000.00    3000.00    4000.00    5000.00",
       "TPOT ms            10000.00   11000.00   12000.00   13000.00   14000.00",
       "end to end ms      20000.00   21000.00   22000.00   23000.00   24000.00",
       "queued ms          30000.00   31000.00   32000.00   33000.00   34000.00", "",
       "requests         40 finished, 3 rejected (the prompt is too long), 2 never finished",
       "makespan         20.0 s; 2.00 requests/s, 400 prompt tokens/s, 30 output tokens/s",
       "goodput          1.25 requests/s; 62.5 % meet TTFT <= 2.5 s TPOT <= 50 ms", "prefix hits      25.00 % of 8000 prompt tokens",
       "tier             12.50 % of the prompt tokens loaded; 1.5 GiB in, 2.5 GiB out; 7 requests swapped out",
       "KV cache in use  37.5 % mean, 87.5 % peak; 6 blocks evicted", "preemptions      5; 20.00 % of the computed tokens were recomputed",
       "steps            70 of 3 workers, busy 75.0 %",
       "waited           2.5 s for a batch slot, 3.5 s for the token budget, 4.5 s for blocks"});
}

TEST(SimulationTable, LeavesOutWhatTheRunDoesNotHave) {
  SimulationResult result = result_of_distinct_values();
  result.num_refused = result.num_stuck = 0;
  SimulationOptions options = test::small_options(true);
  const auto lines = [&] { return lines_of_text(simulation_table(result, options)); };
  ASSERT_EQ(lines().size(), 14U);
  EXPECT_EQ(lines()[7], "requests         40 finished");
  EXPECT_EQ(lines()[9], "prefix hits      25.00 % of 8000 prompt tokens");
  EXPECT_EQ(lines()[12], "steps            70 of one worker, busy 75.0 %");
  result.num_refused = 1;
  EXPECT_EQ(lines()[7], "requests         40 finished, 1 rejected (the prompt is too long)");
  result.num_refused = 0, result.num_stuck = 1;
  EXPECT_EQ(lines()[7], "requests         40 finished, 1 never finished");
  options.slo_ttft_s = 1.0;
  EXPECT_EQ(lines()[9], "goodput          1.25 requests/s; 62.5 % meet TTFT <= 1 s");
  options.slo_ttft_s = 0.0, options.slo_tpot_s = 0.5;
  EXPECT_EQ(lines()[9], "goodput          1.25 requests/s; 62.5 % meet TPOT <= 500 ms");
  options.slo_tpot_s = 0.0, options.tier.bytes = 1;
  EXPECT_TRUE(lines()[10].starts_with("tier             12.50 % of"));
  options.tier.bytes = 0, options.tier.swap_bytes = 1;
  EXPECT_TRUE(lines()[10].starts_with("tier             12.50 % of"));
  // A run in which nothing happened has no shares.
  options.tier.swap_bytes = 0;
  const std::vector<std::string> empty = lines_of_text(simulation_table({}, options));
  EXPECT_EQ(empty[8], "makespan         0.0 s; 0.00 requests/s, 0 prompt tokens/s, 0 output tokens/s");
  EXPECT_EQ(empty[9], "prefix hits      0.00 % of 0 prompt tokens");
  EXPECT_EQ(empty[11], "preemptions      0; 0.00 % of the computed tokens were recomputed");
}

// A cache of 100 blocks, which was measured exactly, with the estimates for half and for twice as many.
HitRateCurve curve_of_three_sizes() {
  HitRateCurve curve;
  curve.num_blocks = 100;
  curve.block_size = 16;
  curve.sizes = {50, 100, 200};
  curve.sampling_rate = 0.125;
  curve.num_tracked = 9;
  curve.num_bytes = 3 << 20;
  curve.seconds = 10.0;
  curve.all = {.num_requests = 4.0, .query_tokens = 1000.0, .found_tokens = 400.0, .hit_tokens = {200.0, 400.0, 500.0}};
  return curve;
}

TEST(SimulationTable, EndsWithTheCurve) {
  SimulationResult result = result_of_distinct_values();
  result.curve = curve_of_three_sizes();
  SimulationOptions options = options_with_everything();
  const std::string table = simulation_table(result, options);
  expect_lines(table.substr(table.find("\npredicted") + 1),
               {"predicted for other sizes of the KV cache of each instance, from a sample of 0.125 of the blocks (3.0 MiB):",
                "         GiB     blocks   hits %   tokens/s saved        s/s saved",
                "       0.000         50    20.00            -20.0          -2.0000",
                "       0.000        100    40.00              0.0           0.0000  now",
                "       0.000        200    50.00             10.0           1.0000"});
  options.num_instances = 1;
  EXPECT_NE(simulation_table(result, options).find("of the KV cache, from a sample"), std::string::npos);
}

TEST(CurveCosts, FollowFromTheWorkerAndTheTier) {
  const HitRateCurve curve = curve_of_three_sizes();
  SimulationOptions options = options_with_everything();
  const CurveCosts with_tier = curve_costs(curve, options);
  EXPECT_EQ(with_tier.block_bytes, 1024U);
  EXPECT_DOUBLE_EQ(with_tier.prefill_tokens_per_s, 10.0);
  ASSERT_EQ(with_tier.named.size(), 1U);
  EXPECT_EQ(with_tier.named[0], std::pair(std::string("now + tier"), std::uint64_t{1024}));
  options.tier.bytes = 99 << 10;
  EXPECT_EQ(curve_costs(curve, options).named.at(0).second, 100U) << "the cache is larger";
  options.tier.bytes = 0;
  options.worker.prefill_token_s = 0.0;
  EXPECT_TRUE(curve_costs(curve, options).named.empty());
  EXPECT_EQ(curve_costs(curve, options).prefill_tokens_per_s, 0.0);
}

TEST(CurveTable, MarksUnknownSavingsAndLabels) {
  const std::vector<CurveRow> rows = {
      {.num_blocks = 5, .num_bytes = std::uint64_t{3} << 29U, .hit_rate = 0.25, .saved_tokens_per_s = -12.5},
      {.num_blocks = 6,
       .num_bytes = std::uint64_t{1} << 30U,
       .label = "now",
       .hit_rate = 0.5,
       .saved_tokens_per_s = 8.0,
       .saved_s_per_s = 0.125}};
  expect_lines(curve_table(rows), {"         GiB     blocks   hits %   tokens/s saved        s/s saved",
                                   "       1.500          5    25.00            -12.5                ?",
                                   "       1.000          6    50.00              8.0           0.1250  now"});
}

TEST(RoutingName, IsTheOption) {
  EXPECT_EQ(routing_name(Routing::round_robin), "round-robin");
  EXPECT_EQ(routing_name(Routing::by_prefix), "prefix");
  EXPECT_EQ(routing_name(Routing::least_loaded), "least-loaded");
}

TEST(SweepTable, HasARowPerPoint) {
  const std::vector<SweepAxis> axes = {{"kv-blocks", {"9", "10"}}, {"routing", {"prefix"}}};
  const std::vector<SweepPoint> points = {{.values = {"9", "prefix"}, .options = {}}, {.values = {"10", "prefix"}, .options = {}}};
  const std::vector<SimulationResult> results = {result_of_distinct_values(), {}};
  expect_lines(
      sweep_table(axes, points, results),
      {"kv-blocks  routing   TTFT p50        p90     p99 ms  TPOT p50    p99 ms out tok/s goodput  hits %   KV % preempt refused",
       "        9   prefix     2000.0     3000.0     4000.0  11000.00  13000.00        30    1.25   25.00   37.5       5       5",
       "       10   prefix        0.0        0.0        0.0      0.00      0.00         0    0.00    0.00    0.0       0       0"});
  EXPECT_EQ(lines_of_text(sweep_table(axes, points, std::span(results).first(1))).size(), 2U);
  EXPECT_EQ(lines_of_text(sweep_table(axes, std::span(points).first(1), results)).size(), 2U);
}

TEST(SweepJson, HasTheValuesOfEachPoint) {
  const std::vector<SweepAxis> axes = {{"kv-blocks", {"9", "10"}}, {"routing", {"prefix"}}};
  const std::vector<SweepPoint> points = {{.values = {"9", "prefix"}, .options = {}}, {.values = {"10", "prefix"}, .options = {}}};
  const std::vector<SimulationResult> results = {result_of_distinct_values(), {}};
  const std::string text = sweep_json(axes, points, results);
  EXPECT_TRUE(text.ends_with("]\n"));
  const boost::json::value json = boost::json::parse(text);
  ASSERT_EQ(json.as_array().size(), 2U);
  EXPECT_EQ(boost::json::serialize(json.at(0).at("at")), R"({"kv-blocks":"9","routing":"prefix"})");
  EXPECT_EQ(boost::json::serialize(json.at(1).at("at")), R"({"kv-blocks":"10","routing":"prefix"})");
  EXPECT_EQ(json.at(0).at("num_finished"), 40);
  EXPECT_EQ(json.at(1).at("num_finished"), 0);
  EXPECT_EQ(boost::json::parse(sweep_json(axes, points, std::span(results).first(1))).as_array().size(), 1U);
  EXPECT_EQ(boost::json::parse(sweep_json(axes, std::span(points).first(1), results)).as_array().size(), 1U);
}

// Scripts of users read these names, so the names must not change.
TEST(SimulationJson, HasAFieldPerFigure) {
  SimulationResult result = result_of_distinct_values();
  result.curve = curve_of_three_sizes();
  SimulationOptions options = options_with_everything();
  options.tier.bytes = 0;
  const boost::json::value json = boost::json::parse(simulation_json(result, options));
  const std::pair<const char*, double> numbers[] = {
      {"num_finished", 40},         {"num_refused", 3},        {"num_stuck", 2},          {"prompt_tokens", 8000},
      {"output_tokens", 600},       {"cached_tokens", 2000},   {"computed_tokens", 8200}, {"num_steps", 70},
      {"num_preemptions", 5},       {"num_evicted_blocks", 6}, {"loaded_tokens", 1000},   {"loaded_bytes", 1610612736},
      {"stored_bytes", 2684354560}, {"num_swapped_out", 7},    {"makespan_s", 20},        {"hit_rate", 0.25},
      {"goodput_per_s", 1.25},      {"good_share", 0.625},     {"kv_usage_mean", 0.375},  {"kv_usage_peak", 0.875},
      {"busy_share", 0.75},         {"held_by_batch_s", 2.5},  {"held_by_budget_s", 3.5}, {"held_by_blocks_s", 4.5}};
  for (const auto& [name, value] : numbers) EXPECT_EQ(json.at(name).to_number<double>(), value) << name;
  for (const auto& [name, first] : {std::pair("ttft_s", 1), {"tpot_s", 10}, {"end_to_end_s", 20}, {"queue_s", 30}}) {
    int more = -1;
    for (const char* part : {"mean", "p50", "p90", "p99", "max"})
      EXPECT_EQ(json.at(name).at(part).to_number<double>(), first + ++more) << name;
    EXPECT_EQ(json.at(name).at("count"), first);
  }
  EXPECT_EQ(json.at("first_refusal"), "the prompt is too long");
  const boost::json::value& given = json.at("options");
  EXPECT_EQ(given.at("num_instances"), 3);
  EXPECT_EQ(given.at("routing"), "prefix");
  EXPECT_EQ(given.at("block_size"), 16);
  EXPECT_EQ(given.at("num_blocks"), 1000);
  EXPECT_EQ(given.at("max_num_seqs"), 8);
  EXPECT_EQ(given.at("max_num_batched_tokens"), 64);
  EXPECT_EQ(given.at("async_scheduling"), true);
  EXPECT_EQ(given.at("kv_dram_bytes"), 0);
  EXPECT_EQ(given.at("kv_swap_bytes"), 4096);
  EXPECT_EQ(given.at("slo_ttft_s").to_number<double>(), 2.5);
  EXPECT_EQ(given.at("slo_tpot_s").to_number<double>(), 0.05);
  EXPECT_EQ(given.at("worker").at("decode_row_s").to_number<double>(), 0.5);
  ASSERT_EQ(json.at("samples").as_array().size(), 2U);
  const boost::json::value& sample = json.at("samples").at(0);
  ASSERT_EQ(sample.as_array().size(), 4U);
  for (const auto& [part, value] : {std::pair(0U, 0.5), {1U, 1.0}, {2U, 2.0}, {3U, 0.25}})
    EXPECT_EQ(sample.at(part).to_number<double>(), value) << part;
  const boost::json::value& curve = json.at("curve");
  EXPECT_EQ(curve.at("sampling_rate").to_number<double>(), 0.125);
  EXPECT_EQ(curve.at("num_tracked"), 9);
  EXPECT_EQ(curve.at("memory_bytes"), 3 << 20);
  EXPECT_EQ(curve.at("seconds").to_number<double>(), 10.0);
  ASSERT_EQ(curve.at("rows").as_array().size(), 3U);
  EXPECT_EQ(curve.at("rows").at(0).as_object().if_contains("label"), nullptr);
  EXPECT_EQ(curve.at("rows").at(1).at("label"), "now");
  EXPECT_EQ(curve.at("rows").at(2).at("blocks"), 200);
  EXPECT_EQ(curve.at("rows").at(2).at("bytes"), 200 << 10);
  EXPECT_DOUBLE_EQ(curve.at("rows").at(2).at("hit_rate").to_number<double>(), 0.5);
  EXPECT_DOUBLE_EQ(curve.at("rows").at(2).at("saved_tokens_per_s").to_number<double>(), 10.0);
  EXPECT_DOUBLE_EQ(curve.at("rows").at(2).at("saved_s_per_s").to_number<double>(), 1.0);
  options.worker.prefill_token_s = 0.0;
  result.first_refusal.clear();
  const boost::json::value other = boost::json::parse(simulation_json(result, options));
  EXPECT_EQ(other.at("curve").at("rows").at(2).as_object().if_contains("saved_s_per_s"), nullptr);
  EXPECT_EQ(other.as_object().if_contains("first_refusal"), nullptr);
  result.curve.reset();
  EXPECT_EQ(boost::json::parse(simulation_json(result, options)).as_object().if_contains("curve"), nullptr);
}

}  // namespace
}  // namespace quire
