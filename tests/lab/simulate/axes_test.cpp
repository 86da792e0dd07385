// Tests the axes of a sweep, its progress and its estimate, and the choices of a router.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "lab/lab_support.h"
#include "lab/simulate/router.h"

namespace quire {
namespace {

using test::small_options;

// Returns the options of the only point of this axis.
SimulationOptions options_at(std::string_view text) {
  const auto axis = parse_sweep_axis(text);
  EXPECT_TRUE(axis.has_value()) << text;
  if (!axis) return {};
  return sweep_points({}, std::vector{*axis}).value().at(0).options;
}

TEST(SweepAxes, SetTheirOption) {
  EXPECT_EQ(options_at("kv-blocks=7").num_blocks, 7U);
  EXPECT_EQ(options_at("block-size=4294967295").block_size, 4294967295U);
  EXPECT_EQ(options_at("instances=1").num_instances, 1U);
  EXPECT_EQ(options_at("instances=3").num_instances, 3U);
  EXPECT_EQ(options_at("max-num-seqs=5").scheduler.max_num_seqs, 5U);
  EXPECT_EQ(options_at("max-num-batched-tokens=9").scheduler.max_num_batched_tokens, 9U);
  EXPECT_EQ(options_at("kv-dram=12").tier.bytes, 12U);
  EXPECT_EQ(options_at("kv-dram=12").tier.swap_bytes, 0U);
  EXPECT_EQ(options_at("kv-swap=12").tier.swap_bytes, 12U);
  EXPECT_EQ(options_at("routing=round-robin").routing, Routing::round_robin);
  EXPECT_EQ(options_at("routing=prefix").routing, Routing::by_prefix);
  EXPECT_EQ(options_at("routing=least-loaded").routing, Routing::least_loaded);
  EXPECT_EQ(options_at("scheduling-policy=fcfs").scheduler.policy, SchedulingPolicy::fcfs);
  EXPECT_EQ(options_at("scheduling-policy=continuum").scheduler.policy, SchedulingPolicy::continuum);
}

TEST(SweepAxes, SizesHaveUnits) {
  const std::pair<const char*, std::uint64_t> sizes[] = {{"0", 0},
                                                         {"1", 1},
                                                         {"3K", 3 << 10},
                                                         {"3KiB", 3 << 10},
                                                         {"3M", 3 << 20},
                                                         {"3GiB", std::uint64_t{3} << 30U},
                                                         {"3TiB", std::uint64_t{3} << 40U},
                                                         {"8388607T", std::uint64_t{8388607} << 40U},
                                                         {"8388607", 8388607}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(options_at(fmt::format("kv-swap={}", text)).tier.swap_bytes, bytes) << text;
  for (const char* text :
       {"", "K", "-1", "1B", "1KB", "1KM", "1GT", "1k", "1 K", "1P", "8388608", "8388608T", "99999999999999999999", "1.5G"})
    EXPECT_EQ(parse_sweep_axis(fmt::format("kv-dram={}", text)).error().to_string(),
              fmt::format("sweep: '{}' is not a valid value of kv-dram; write kv-dram=VALUE,VALUE", text));
}

TEST(SweepAxes, ErrorsNameTheValueAndTheAxis) {
  EXPECT_EQ(sweep_axis_names(),
            "kv-blocks, block-size, instances, max-num-seqs, max-num-batched-tokens, kv-dram, kv-swap, routing, scheduling-policy");
  EXPECT_EQ(parse_sweep_axis("instances=1,20,3")->values, (std::vector<std::string>{"1", "20", "3"}));
  EXPECT_EQ(parse_sweep_axis("instances=1,20,3")->name, "instances");
  for (const auto& [text, value] : {std::pair("instances=", ""),
                                    {"instances=1,", ""},
                                    {"instances=,1", ""},
                                    {"instances=1,0", "0"},
                                    {"instances=2x", "2x"},
                                    {"instances=4294967296", "4294967296"},
                                    {"instances= 1", " 1"}})
    EXPECT_EQ(parse_sweep_axis(text).error().to_string(),
              fmt::format("sweep: '{}' is not a valid value of instances; write instances=VALUE,VALUE", value));
  for (const char* value : {"roundrobin", "", "prefix "})
    EXPECT_FALSE(parse_sweep_axis(fmt::format("routing={}", value)).has_value()) << value;
  for (const char* value : {"priority", "", "FCFS"})
    EXPECT_FALSE(parse_sweep_axis(fmt::format("scheduling-policy={}", value)).has_value()) << value;
  for (const char* text : {"instances", "colour=1", "=1", ""})
    EXPECT_EQ(parse_sweep_axis(text).error().to_string(),
              fmt::format("sweep: '{}' does not name a sweepable option; write NAME=VALUE,VALUE with one of {}", text, sweep_axis_names()));
  const std::string longer(300, 'x');
  EXPECT_EQ(parse_sweep_axis(longer).error().message, fmt::format("'{}' does not name a sweepable option", longer.substr(0, 100)));
  EXPECT_EQ(parse_sweep_axis("routing=" + longer).error().message,
            fmt::format("'{}' is not a valid value of routing", longer.substr(0, 100)));

  const auto error_of = [](const std::vector<SweepAxis>& axes) {
    const auto points = sweep_points({}, axes);
    return points ? std::to_string(points->size()) : points.error().to_string();
  };
  EXPECT_EQ(error_of({}), "1");
  EXPECT_EQ(error_of({{"colour", {"red"}}}), "sweep: 'colour' cannot be swept; use one of " + sweep_axis_names());
  EXPECT_EQ(error_of({{"instances", {}}}), "sweep: 'instances' has no values; write instances=VALUE,VALUE");
  EXPECT_EQ(error_of({{"instances", {"1", "0"}}}), "sweep: '0' is not a valid value of instances; use another value");
  const std::vector<std::string> hundred(100, "1");
  EXPECT_EQ(error_of({{"instances", hundred}, {"kv-blocks", hundred}}), "10000");
  EXPECT_EQ(error_of({{"instances", std::vector<std::string>(10'000, "1")}}), "10000");
  EXPECT_EQ(error_of({{"instances", std::vector<std::string>(10'001, "1")}}), "sweep: has more than 10000 points; use fewer values");
  EXPECT_EQ(error_of({{"instances", hundred}, {"kv-blocks", hundred}, {"kv-dram", {"1", "2"}}}),
            "sweep: has more than 10000 points; use fewer values");
}

TEST(SweepProgress, RisesByHundredths) {
  const Workload workload = test::random_workload(2, 300);
  for (const std::uint32_t num_threads : {0U, 1U, 2U, 8U}) {
    const auto points = sweep_points(small_options(true), std::vector{parse_sweep_axis("kv-blocks=60,500,70,400").value()}).value();
    std::vector<double> told;
    std::set<std::thread::id> threads;
    const auto results = sweep(workload, points, num_threads, [&](double done) {
                           told.push_back(done);
                           threads.insert(std::this_thread::get_id());
                         }).value();
    ASSERT_EQ(results.size(), 4U);
    EXPECT_LE(threads.size(), std::max(num_threads, 1U)) << "no more threads than asked for";
    if (num_threads < 2) EXPECT_EQ(threads, (std::set{std::this_thread::get_id()}));
    ASSERT_GT(told.size(), 50U);
    EXPECT_LT(told.front(), 0.02);
    EXPECT_EQ(std::ranges::count(told, 1.0), 1);
    EXPECT_EQ(told.back(), 1.0);
    for (std::size_t i = 1; i + 1 < told.size(); ++i) EXPECT_GE(told[i], told[i - 1] + 0.01);
    for (const SimulationResult& result : results) {
      EXPECT_TRUE(result.requests.empty()) << "a sweep reports only summaries";
      EXPECT_GT(result.num_finished, 0U);
    }
  }
  // Without progress, nothing is reported.
  EXPECT_TRUE(sweep(workload, std::vector<SweepPoint>(1, {.values = {}, .options = small_options(true)}), 1).has_value());
}

// The estimate covers two runs of the first 200 requests, which this call makes. The inequality holds for every machine and load.
TEST(SweepEstimate, ScalesTheTimeOfTheFirstRequests) {
  const auto bound_and_estimate = [](std::uint32_t num_requests, std::size_t num_points) {
    // All requests are equal, so that the workload is num_requests / 200 times the slice.
    const Workload workload =
        generate_workload({.num_requests = num_requests, .input_tokens = 60.0, .output_tokens = 30.0, .spread = 0.0}).value();
    const std::vector<SweepPoint> points(num_points, {.values = {}, .options = small_options(true)});
    const auto begin = std::chrono::steady_clock::now();
    const double estimate = estimate_sweep_s(workload, points).value();
    const double took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::pair(took_s / 2.0 * std::max(1.0, num_requests / 200.0) * static_cast<double>(num_points), estimate);
  };
  for (const auto& [num_requests, num_points] : {std::pair(100U, 1U), {200U, 3U}, {20'000U, 1U}, {400U, 500U}}) {
    const auto [bound, estimate] = bound_and_estimate(num_requests, num_points);
    EXPECT_GT(estimate, 0.0);
    EXPECT_LE(estimate, bound * (1.0 + 1e-9)) << num_requests << " requests, " << num_points << " points";
  }
}

// ---- routers

// Returns the hashes of a prompt that shares a prefix of `num_shared` blocks with the others of the family.
std::vector<BlockHash> prompt_of(std::uint64_t family, std::size_t num_shared, std::uint64_t own, std::size_t num_blocks) {
  std::vector<BlockHash> hashes(num_blocks);
  for (std::size_t i = 0; i < num_blocks; ++i) {
    const std::uint64_t value = (i < num_shared ? family : own) * 1'000'000 + i;
    std::memcpy(hashes[i].bytes.data(), &value, sizeof value);
  }
  return hashes;
}

using Open = std::vector<std::uint32_t>;

TEST(InstanceRouter, ByPrefixKnowsTheFirstAndEverySixteenthBlock) {
  // A prompt of the second family also goes to the second instance where it shares a known block.
  const auto goes_back = [](std::size_t num_shared, std::size_t num_blocks) {
    InstanceRouter router(Routing::by_prefix);
    EXPECT_EQ(router.choose(prompt_of(1, 40, 0, 40), Open{1, 0}), 1U);
    return router.choose(prompt_of(1, num_shared, 2, num_blocks), Open{0, 5}) == 1U;
  };
  EXPECT_TRUE(goes_back(1, 1));
  EXPECT_TRUE(goes_back(1, 40));
  EXPECT_TRUE(goes_back(16, 17));
  EXPECT_FALSE(goes_back(0, 40));
  EXPECT_FALSE(goes_back(0, 0));
}

TEST(InstanceRouter, ByPrefixPrefersTheLongestPrefix) {
  const auto chosen = [](std::size_t num_shared, std::size_t num_blocks) {
    InstanceRouter router(Routing::by_prefix);
    // Instance 1 has the first block. Instance 2 gets the same prompt up to block 16, and instance 3 up to block 32.
    EXPECT_EQ(router.choose(prompt_of(1, 16, 0, 16), Open{1, 0, 1, 1}), 1U);
    EXPECT_EQ(router.choose(prompt_of(1, 17, 0, 17), Open{50, 50, 0, 50}), 2U);
    EXPECT_EQ(router.choose(prompt_of(1, 16, 0, 16), Open{50, 0, 50, 50}), 1U) << "the first block moves back";
    EXPECT_EQ(router.choose(prompt_of(1, 33, 0, 33), Open{50, 50, 50, 0}), 3U);
    EXPECT_EQ(router.choose(prompt_of(1, 17, 0, 17), Open{50, 50, 0, 50}), 2U);
    EXPECT_EQ(router.choose(prompt_of(1, 16, 0, 16), Open{50, 0, 50, 50}), 1U);
    return router.choose(prompt_of(1, num_shared, 9, num_blocks), Open{0, 4, 4, 4});
  };
  EXPECT_EQ(chosen(40, 40), 3U);
  EXPECT_EQ(chosen(33, 40), 3U);
  EXPECT_EQ(chosen(32, 40), 2U);
  EXPECT_EQ(chosen(17, 17), 2U);
  EXPECT_EQ(chosen(17, 40), 2U);
  EXPECT_EQ(chosen(16, 40), 1U);
  EXPECT_EQ(chosen(40, 16), 1U);
  EXPECT_EQ(chosen(0, 40), 0U);
}

// An instance may have twice the open requests of the idlest one, and eight more.
TEST(InstanceRouter, ByPrefixSkipsABusyInstanceForAShorterPrefix) {
  const auto chosen = [](const Open& open) {
    InstanceRouter router(Routing::by_prefix);
    EXPECT_EQ(router.choose(prompt_of(1, 17, 0, 17), Open{1, 1, 0}), 2U);
    EXPECT_EQ(router.choose(prompt_of(1, 16, 0, 16), Open{50, 0, 50}), 1U);
    return router.choose(prompt_of(1, 17, 0, 17), open);
  };
  EXPECT_EQ(chosen({0, 0, 8}), 2U);
  EXPECT_EQ(chosen({0, 0, 9}), 1U);
  EXPECT_EQ(chosen({0, 8, 9}), 1U);
  EXPECT_EQ(chosen({0, 9, 9}), 0U);
  EXPECT_EQ(chosen({3, 14, 14}), 2U);
  EXPECT_EQ(chosen({3, 14, 15}), 1U);
  EXPECT_EQ(chosen({3, 15, 15}), 0U);
}

// The chosen instance gets all known blocks of the prompt.
TEST(InstanceRouter, ByPrefixMovesThePrefixToTheChosenInstance) {
  InstanceRouter router(Routing::by_prefix);
  EXPECT_EQ(router.choose(prompt_of(1, 40, 0, 40), Open{0, 1}), 0U);
  EXPECT_EQ(router.choose(prompt_of(1, 40, 0, 40), Open{90, 1}), 1U);
  EXPECT_EQ(router.choose(prompt_of(1, 40, 0, 40), Open{0, 1}), 1U);
  EXPECT_EQ(router.choose(prompt_of(1, 1, 7, 40), Open{0, 1}), 1U);
}

TEST(InstanceRouter, ByPrefixRemembersAnOlderGeneration) {
  InstanceRouter router(Routing::by_prefix);
  constexpr std::size_t kBlocks = 16 * 4096;
  const auto fill = [&](std::uint64_t first) {
    std::vector<BlockHash> many(kBlocks);
    for (std::uint64_t round = 0; round < 260; ++round) {
      for (std::size_t i = 0; i < kBlocks; i += 16) {
        const std::uint64_t value = (first + round) << 32U | i;
        std::memcpy(many[i].bytes.data(), &value, sizeof value);
      }
      router.choose(many, Open{0, 1});
    }
  };
  EXPECT_EQ(router.choose(prompt_of(1, 40, 0, 40), Open{1, 0}), 1U);
  fill(1000);  // more than a million prefixes
  EXPECT_EQ(router.choose(prompt_of(1, 40, 0, 40), Open{0, 1}), 1U);
  EXPECT_EQ(router.choose(prompt_of(2, 40, 0, 40), Open{0, 1}), 0U);
}

TEST(InstanceRouter, OtherRoutingsIgnorePrefixes) {
  InstanceRouter least(Routing::least_loaded), round(Routing::round_robin);
  EXPECT_EQ(least.choose(prompt_of(1, 40, 0, 40), Open{1, 0, 0}), 1U);
  EXPECT_EQ(least.choose(prompt_of(1, 40, 0, 40), Open{0, 1, 0}), 0U);
  for (const std::uint32_t expected : {0U, 1U, 0U, 1U}) EXPECT_EQ(round.choose(prompt_of(1, 40, 0, 40), Open{7, 0}), expected);
}

}  // namespace
}  // namespace quire
