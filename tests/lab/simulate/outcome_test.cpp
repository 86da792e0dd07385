// Tests the figures of a run, computed by hand from the times of its requests, and the checks of a simulation's input.
#include "lab/simulate/outcome.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/lab_support.h"
#include "lab/simulate/core_config.h"
#include "lab/simulate/step_sizes.h"

namespace quire {
namespace {

using test::request_at;
using test::small_options;
using test::workload_of;

// Three finished requests, one refused, and one that never ends.
SimulationResult five_requests() {
  SimulationResult result;
  const auto add = [&](double arrival, double scheduled, double first, double last, std::uint32_t in, std::uint32_t out,
                       std::uint32_t cached) {
    RequestTimes& times = result.requests.emplace_back();
    times.arrival_s = arrival;
    times.scheduled_s = scheduled;
    times.first_token_s = first;
    times.last_token_s = last;
    times.prompt_tokens = in;
    times.output_tokens = out;
    times.cached_tokens = cached;
  };
  add(1.0, 2.0, 4.0, 10.0, 100, 4, 16);
  add(3.0, 3.0, 5.0, 5.0, 50, 1, 0);
  add(0.5, -1.0, -1.0, -1.0, 1000, 1000, 0);
  result.requests.back().refused = true;
  add(0.25, 1.0, 2.0, -1.0, 2000, 2000, 500);
  add(2.0, 6.0, 7.0, 11.0, 10, 2, 8);
  result.busy_share = 8.0;  // seconds, before summarise()
  result.kv_usage_mean = 2.0;
  return result;
}

std::string text_of_distribution(const Distribution& values) {
  return fmt::format("{}: {:.6g} {:.6g} {:.6g} {:.6g} {:.6g}", values.count, values.mean, values.p50, values.p90, values.p99, values.max);
}

TEST(Summary, CoversFinishedRequests) {
  SimulationResult result = five_requests();
  SimulationOptions options;
  options.num_instances = 2;
  summarise(result, options);
  EXPECT_EQ(result.num_finished, 3U);
  EXPECT_EQ(result.num_refused, 1U);
  EXPECT_EQ(result.num_stuck, 1U);
  EXPECT_EQ(result.prompt_tokens, 160U);
  EXPECT_EQ(result.output_tokens, 7U);
  EXPECT_EQ(result.cached_tokens, 24U);
  EXPECT_DOUBLE_EQ(result.makespan_s, 10.0);
  EXPECT_DOUBLE_EQ(result.busy_share, 0.4);
  EXPECT_DOUBLE_EQ(result.kv_usage_mean, 0.25);
  EXPECT_EQ(text_of_distribution(result.ttft_s), "3: 3.33333 3 4.6 4.96 5");
  EXPECT_EQ(text_of_distribution(result.tpot_s), "2: 3 3 3.8 3.98 4");
  EXPECT_EQ(text_of_distribution(result.end_to_end_s), "3: 6.66667 9 9 9 9");
  EXPECT_EQ(text_of_distribution(result.queue_s), "3: 1.66667 1 3.4 3.94 4");
}

TEST(Summary, GoodputCountsRequestsAtTheirLimits) {
  const auto good = [](double ttft_s, double tpot_s) {
    SimulationResult result = five_requests();
    SimulationOptions options;
    options.slo_ttft_s = ttft_s;
    options.slo_tpot_s = tpot_s;
    summarise(result, options);
    return std::pair(result.goodput_per_s, result.good_share);
  };
  EXPECT_EQ(good(0.0, 0.0), std::pair(0.3, 0.6));
  EXPECT_EQ(good(3.0, 2.0), std::pair(0.2, 0.4));
  EXPECT_EQ(good(2.9, 2.0), std::pair(0.1, 0.2));
  EXPECT_EQ(good(0.0, 1.9), std::pair(0.1, 0.2));
  EXPECT_EQ(good(1.9, 0.0), std::pair(0.0, 0.0));
  EXPECT_EQ(good(5.0, 0.0), std::pair(0.3, 0.6));
}

TEST(Summary, RunsWithoutFinishedRequestsHaveNoTimes) {
  SimulationResult result = five_requests();
  result.requests = {result.requests[2], result.requests[3]};
  summarise(result, {});
  EXPECT_EQ(result.num_refused, 1U);
  EXPECT_EQ(result.num_stuck, 1U);
  EXPECT_EQ(result.makespan_s, 0.0);
  EXPECT_EQ(result.goodput_per_s, 0.0);
  EXPECT_EQ(result.good_share, 0.0);
  EXPECT_EQ(result.ttft_s.count, 0U);
  SimulationResult idle = five_requests();
  idle.busy_share = 0.0;
  summarise(idle, {});
  EXPECT_EQ(idle.kv_usage_mean, 2.0) << "no step ran";
}

TEST(Distribution, PercentilesAreThoseOfNumpy) {
  EXPECT_EQ(text_of_distribution(distribution_of({7.0})), "1: 7 7 7 7 7");
  EXPECT_EQ(text_of_distribution(distribution_of({4.0, 1.0})), "2: 2.5 2.5 3.7 3.97 4");
  EXPECT_EQ(text_of_distribution(distribution_of({4.0, 1.0, 2.0})), "3: 2.33333 2 3.6 3.96 4");
  EXPECT_EQ(text_of_distribution(distribution_of({8.0, 4.0, 1.0, 2.0, 16.0})), "5: 6.2 4 12.8 15.68 16");
  EXPECT_EQ(text_of_distribution(distribution_of({})), "0: 0 0 0 0 0");
}

// Each instance gets the same requests as the single one.
TEST(Instances, CountsAreSumsAndSharesAreMeans) {
  SimulationOptions options = small_options(true);
  options.num_blocks = 30;
  options.scheduler.max_num_seqs = 4;
  options.scheduler.max_num_batched_tokens = 32;
  options.kv_bytes_per_token = 1000;
  options.tier.bytes = 16'000 * 100;
  options.tier.swap_bytes = 16'000 * 5;
  options.tier.swap_choice = SwapChoice::always;
  options.tier.load_bytes_per_s = 1e6;
  options.tier.store_bytes_per_s = 2e6;
  options.curve_max_tracked = 1000;
  options.slo_ttft_s = 60.0;
  const Workload once = test::random_workload(3, 150);
  Workload twice = once;
  twice.requests.clear();
  for (const WorkloadRequest& request : once.requests) twice.requests.insert(twice.requests.end(), 2, request);
  const SimulationResult one = simulate(once, options).value();
  options.num_instances = 2;
  const SimulationResult two = simulate(twice, options).value();
  const std::pair<const char*, std::uint64_t SimulationResult::*> counts[] = {
      {"num_finished", &SimulationResult::num_finished},       {"prompt_tokens", &SimulationResult::prompt_tokens},
      {"output_tokens", &SimulationResult::output_tokens},     {"cached_tokens", &SimulationResult::cached_tokens},
      {"computed_tokens", &SimulationResult::computed_tokens}, {"num_steps", &SimulationResult::num_steps},
      {"num_preemptions", &SimulationResult::num_preemptions}, {"num_evicted_blocks", &SimulationResult::num_evicted_blocks},
      {"loaded_tokens", &SimulationResult::loaded_tokens},     {"loaded_bytes", &SimulationResult::loaded_bytes},
      {"stored_bytes", &SimulationResult::stored_bytes},       {"num_swapped_out", &SimulationResult::num_swapped_out}};
  for (const auto& [name, member] : counts) {
    EXPECT_GT(one.*member, 0U) << name;
    EXPECT_EQ(two.*member, 2 * (one.*member)) << name;
  }
  const std::pair<const char*, double SimulationResult::*> sums[] = {{"held_by_batch_s", &SimulationResult::held_by_batch_s},
                                                                     {"held_by_budget_s", &SimulationResult::held_by_budget_s},
                                                                     {"held_by_blocks_s", &SimulationResult::held_by_blocks_s},
                                                                     {"goodput_per_s", &SimulationResult::goodput_per_s}};
  for (const auto& [name, member] : sums) {
    EXPECT_GT(one.*member, 0.0) << name;
    EXPECT_NEAR(two.*member, 2.0 * (one.*member), 1e-9 * (one.*member)) << name;
  }
  const std::pair<const char*, double SimulationResult::*> same[] = {{"makespan_s", &SimulationResult::makespan_s},
                                                                     {"busy_share", &SimulationResult::busy_share},
                                                                     {"kv_usage_mean", &SimulationResult::kv_usage_mean},
                                                                     {"kv_usage_peak", &SimulationResult::kv_usage_peak},
                                                                     {"good_share", &SimulationResult::good_share}};
  for (const auto& [name, member] : same) {
    EXPECT_GT(one.*member, 0.0) << name;
    EXPECT_NEAR(two.*member, one.*member, 1e-9 * (one.*member)) << name;
  }
  ASSERT_TRUE(one.curve && two.curve);
  const std::pair<const char*, double CurveCounts::*> tokens[] = {{"num_requests", &CurveCounts::num_requests},
                                                                  {"query_tokens", &CurveCounts::query_tokens},
                                                                  {"found_tokens", &CurveCounts::found_tokens},
                                                                  {"external_tokens", &CurveCounts::external_tokens}};
  for (const auto& [name, member] : tokens) {
    EXPECT_GT(one.curve->all.*member, 0.0) << name;
    EXPECT_DOUBLE_EQ(two.curve->all.*member, 2.0 * (one.curve->all.*member)) << name;
  }
  ASSERT_EQ(two.curve->all.hit_tokens.size(), one.curve->all.hit_tokens.size());
  for (std::size_t i = 0; i < one.curve->all.hit_tokens.size(); ++i)
    EXPECT_DOUBLE_EQ(two.curve->all.hit_tokens[i], 2.0 * one.curve->all.hit_tokens[i]) << i;
  EXPECT_GT(one.curve->all.hit_tokens.back(), 0.0);
  EXPECT_EQ(two.curve->sizes, one.curve->sizes);
  EXPECT_EQ(two.curve->num_tracked, 2 * one.curve->num_tracked);
  EXPECT_EQ(two.curve->num_bytes, 2 * one.curve->num_bytes);
  EXPECT_DOUBLE_EQ(two.curve->seconds, one.curve->seconds);
  EXPECT_DOUBLE_EQ(two.curve->sampling_rate, one.curve->sampling_rate);
  EXPECT_TRUE(two.curve->tenants.empty());
  // The tier is one of the curve's sizes.
  EXPECT_EQ(std::ranges::count(one.curve->sizes, 100U), 1);
}

TEST(StepSizes, SeparateRowsAndPromptChunks) {
  const auto row = [](std::uint32_t num_computed, std::uint32_t num_tokens) {
    ScheduledRequest one;
    one.num_computed_tokens = num_computed;
    one.num_tokens = num_tokens;
    return one;
  };
  const std::vector<ScheduledRequest> rows = {row(7, 1), row(0, 1), row(10, 4), row(0, 2)};
  StepPlan plan;
  plan.scheduled = rows;
  const StepSizes sizes = sizes_of(plan);
  EXPECT_EQ(sizes.decode_rows, 2.0);
  EXPECT_EQ(sizes.context_tokens, 9.0);  // 8 and 1
  EXPECT_EQ(sizes.prefill_tokens, 6.0);
  EXPECT_EQ(sizes.prefill_pairs, 11.0 + 12.0 + 13.0 + 14.0 + 1.0 + 2.0);
}

// ---- the input of a simulation

// Returns the error for one request, changed by `change`, and the options.
template <class Change>
std::string error_with(const Change& change) {
  Workload workload = workload_of({request_at(0.0, 5, 1), request_at(0.0, 5, 1)});
  workload.tokens.resize(20);
  workload.runs.resize(4);
  SimulationOptions options = small_options(true);
  change(workload.requests[1], options);
  const auto valid = check_simulation(workload, options);
  return valid ? std::string() : valid.error().to_string();
}

TEST(SimulationInput, RequestsHaveBounds) {
  const auto of = [](auto&& change) { return error_with([&](WorkloadRequest& request, SimulationOptions&) { change(request); }); };
  EXPECT_EQ(of([](auto& r) { r.prompt_tokens = r.output_tokens = 1; }), "");
  EXPECT_EQ(of([](auto& r) { r.prompt_tokens = r.output_tokens = 268435456; }), "");
  EXPECT_EQ(of([](auto& r) { r.prompt_tokens = 0; }), "requests[1]: has 0 prompt tokens and 1 output tokens; use 1 to 268435456");
  EXPECT_EQ(of([](auto& r) { r.output_tokens = 0; }), "requests[1]: has 5 prompt tokens and 0 output tokens; use 1 to 268435456");
  EXPECT_EQ(of([](auto& r) { r.prompt_tokens = 268435457; }),
            "requests[1]: has 268435457 prompt tokens and 1 output tokens; use 1 to 268435456");
  EXPECT_EQ(of([](auto& r) { r.output_tokens = 268435457; }),
            "requests[1]: has 5 prompt tokens and 268435457 output tokens; use 1 to 268435456");
  EXPECT_EQ(of([](auto& r) { r.start_s = -0.5; }), "requests[1]: starts at -0.5 s; use a time of at least 0");
  EXPECT_EQ(of([](auto& r) { r.start_s = INFINITY; }), "requests[1]: starts at inf s; use a time of at least 0");
  EXPECT_EQ(of([](auto& r) { r.start_s = NAN; }), "requests[1]: starts at nan s; use a time of at least 0");
  EXPECT_EQ(of([](auto& r) { r.after = 0; }), "");
  EXPECT_EQ(of([](auto& r) { r.after = 1; }), "requests[1]: follows request 1; list a request after the one that it follows");
  EXPECT_EQ(of([](auto& r) { r.after = 2; }), "requests[1]: follows request 2; list a request after the one that it follows");
  EXPECT_EQ(of([](auto& r) { r.has_tokens = true, r.first_token = 15; }), "");
  EXPECT_EQ(of([](auto& r) { r.has_tokens = true, r.first_token = 16; }),
            "requests[1]: refers to tokens outside the workload; add all tokens of its prompt");
  EXPECT_EQ(of([](auto& r) { r.first_token = 16; }), "") << "it has no tokens";
  EXPECT_EQ(of([](auto& r) { r.first_run = 1, r.num_runs = 3; }), "");
  EXPECT_EQ(of([](auto& r) { r.first_run = 2, r.num_runs = 3; }),
            "requests[1]: refers to runs of ids outside the workload; add all runs of its ids");
}

TEST(SimulationInput, OptionsHaveBounds) {
  const auto of = [](auto&& change) { return error_with([&](WorkloadRequest&, SimulationOptions& options) { change(options); }); };
  EXPECT_EQ(check_simulation({}, small_options(true)).error().to_string(), "workload: contains no requests; use a workload with requests");
  EXPECT_EQ(of([](auto& o) { o.num_instances = 4096; }), "");
  EXPECT_EQ(of([](auto& o) { o.num_instances = 4097; }), "instances: is 4097; use 1 to 4096");
  EXPECT_EQ(of([](auto& o) { o.num_instances = 0; }), "instances: is 0; use 1 to 4096");
  EXPECT_EQ(of([](auto& o) { o.num_blocks = 1U << 26U; }), "");
  EXPECT_EQ(of([](auto& o) { o.num_blocks = (1U << 26U) + 1; }), "kv-blocks: is 67108865 over all instances; use at most 67108864");
  EXPECT_EQ(of([](auto& o) { o.num_blocks = (1U << 25U) + 1, o.num_instances = 2; }),
            "kv-blocks: is 67108866 over all instances; use at most 67108864");
  for (double SimulationOptions::* slo : {&SimulationOptions::slo_ttft_s, &SimulationOptions::slo_tpot_s}) {
    EXPECT_EQ(of([&](auto& o) { o.*slo = 0.0; }), "");
    for (const double value : {-1.0, static_cast<double>(NAN)})
      EXPECT_EQ(of([&](auto& o) { o.*slo = value; }), "slo: must be at least 0; use 0 or more seconds; 0 turns the limit off");
  }
  const std::pair<const char*, double TierModel::*> speeds[] = {{"load_bytes_per_s", &TierModel::load_bytes_per_s},
                                                                {"store_bytes_per_s", &TierModel::store_bytes_per_s}};
  for (const auto& [name, speed] : speeds) {
    EXPECT_EQ(of([&](auto& o) { o.tier.*speed = 1e-3; }), "");
    for (const double value : {0.0, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)})
      EXPECT_EQ(of([&](auto& o) { o.tier.*speed = value; }),
                fmt::format("{}: is {}; use a positive number of bytes per second", name, value));
  }
  for (const double value : {0.0, 999999.0}) EXPECT_EQ(of([&](auto& o) { o.tier.latency_s = value; }), "");
  for (const double value : {-1.0, 1e6, static_cast<double>(NAN)})
    EXPECT_EQ(of([&](auto& o) { o.tier.latency_s = value; }), fmt::format("latency_s: is {}; use 0 or more seconds", value));
  for (const std::uint64_t value : {4U, 1U << 28U}) EXPECT_EQ(of([&](auto& o) { o.kv_bytes_per_token = value; }), "");
  for (const std::uint64_t value : {3U, (1U << 28U) + 1})
    EXPECT_EQ(of([&](auto& o) { o.kv_bytes_per_token = value; }), fmt::format("kv_bytes_per_token: is {}; use 4 to 268435456", value));
  const std::pair<const char*, double WorkerModel::*> terms[] = {{"host_s", &WorkerModel::host_s},
                                                                 {"step_s", &WorkerModel::step_s},
                                                                 {"prefill_token_s", &WorkerModel::prefill_token_s},
                                                                 {"decode_row_s", &WorkerModel::decode_row_s},
                                                                 {"context_token_s", &WorkerModel::context_token_s},
                                                                 {"prefill_pair_s", &WorkerModel::prefill_pair_s}};
  for (const auto& [name, term] : terms) {
    for (const double value : {0.0, 999999.0}) EXPECT_EQ(of([&](auto& o) { o.worker.*term = value; }), "") << name;
    for (const double value : {-1e-9, 1e6, static_cast<double>(NAN)})
      EXPECT_EQ(of([&](auto& o) { o.worker.*term = value; }), fmt::format("{}: is {}; use 0 or more seconds", name, value));
  }
}

TEST(SimulatedCore, DefaultsFollowTheWorkload) {
  Workload workload = workload_of({request_at(0.0, 50, 7), request_at(0.0, 20, 30), request_at(0.0, 57, 1)});
  SimulationOptions options;
  const auto of = [&] { return simulated_core(workload, options); };
  EXPECT_EQ(of().block_size, 16U);
  EXPECT_EQ(of().kv.num_blocks, 25'001U);
  EXPECT_EQ(of().scheduler.max_model_len, 59U);
  EXPECT_EQ(of().limits.max_outstanding_plans, options.scheduler.async_scheduling ? 2U : 1U);
  ASSERT_EQ(of().kv.groups.size(), 1U);
  EXPECT_EQ(std::get<FullAttentionSpec>(of().kv.groups[0].spec).head_size, 32'768U);
  EXPECT_EQ(std::get<FullAttentionSpec>(of().kv.groups[0].spec).block_size, 16U);
  EXPECT_FALSE(of().report.log_stats);
  EXPECT_FALSE(of().report.count_common_prefix);
  EXPECT_TRUE(of().prefix_cache.enable_prefix_caching);
  EXPECT_EQ(of().swap.num_swap_slots, 0U);
  EXPECT_EQ(of().swap.swap_choice, SwapChoice::off);
  workload.id_tokens = 64;
  EXPECT_EQ(of().block_size, 64U);
  EXPECT_EQ(of().kv.num_blocks, 6'251U);
  options.block_size = 32;
  options.num_blocks = 77;
  options.enable_prefix_caching = false;
  options.scheduler.max_model_len = 40;
  EXPECT_EQ(of().block_size, 32U);
  EXPECT_EQ(of().kv.num_blocks, 77U);
  EXPECT_EQ(of().scheduler.max_model_len, 40U);
  EXPECT_FALSE(of().prefix_cache.enable_prefix_caching);
  for (const bool async : {false, true}) {
    options.scheduler.async_scheduling = async;
    EXPECT_EQ(of().limits.max_outstanding_plans, async ? 2U : 1U);
  }
}

TEST(SimulatedCore, SwapHasASlotPerBlockOfItsMemory) {
  SimulationOptions options = small_options(true);
  options.kv_bytes_per_token = 64;  // 1,024 bytes per block
  options.tier.swap_choice = SwapChoice::always;
  const auto slots = [&](std::uint64_t bytes) {
    options.tier.swap_bytes = bytes;
    const CoreConfig config = simulated_core(workload_of({request_at(0.0, 5, 1)}), options);
    EXPECT_EQ(config.swap.swap_choice, config.swap.num_swap_slots > 0 ? SwapChoice::always : SwapChoice::off) << bytes;
    return config.swap.num_swap_slots;
  };
  EXPECT_EQ(slots(0), 0U);
  EXPECT_EQ(slots(1023), 0U);
  EXPECT_EQ(slots(1024), 1U);
  EXPECT_EQ(slots(2047), 1U);
  EXPECT_EQ(slots(10'240), 10U);
  EXPECT_EQ(slots(std::uint64_t{1} << 50U), 1U << 24U);
}

}  // namespace
}  // namespace quire
