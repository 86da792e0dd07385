// Tests generated workloads: the bounds of their options, and the distributions of lengths, prefixes and arrivals.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "lab/lab_support.h"

namespace quire {
namespace {

TEST(Generator, OptionsHaveBounds) {
  const auto error_of = [](const GeneratorOptions& options) {
    const auto made = generate_workload(options);
    return made ? std::string() : made.error().to_string();
  };
  EXPECT_EQ(error_of({.num_requests = 0}), "requests: is 0; use 1 to 50000000");
  EXPECT_EQ(error_of({.num_requests = 50'000'001}), "requests: is 50000001; use 1 to 50000000");
  EXPECT_EQ(error_of({.num_requests = 1}), "");
  EXPECT_EQ(error_of({.num_requests = 1, .rate_per_s = 1e-3}), "");
  EXPECT_EQ(error_of({.rate_per_s = -1.0}), "rate: is -1; use requests per second, or inf for all at the same time");
  EXPECT_EQ(error_of({.rate_per_s = NAN}), "rate: is nan; use requests per second, or inf for all at the same time");
  for (const double mean : {1.0, 1e8}) EXPECT_EQ(error_of({.num_requests = 1, .input_tokens = mean, .output_tokens = mean}), "");
  for (const double mean : {0.99, 1.01e8, -1.0, static_cast<double>(NAN)}) {
    EXPECT_EQ(error_of({.input_tokens = mean}), fmt::format("input-tokens: is {}; use a mean of 1 to 1e8", mean));
    EXPECT_EQ(error_of({.output_tokens = mean}), fmt::format("output-tokens: is {}; use a mean of 1 to 1e8", mean));
  }
  for (const double spread : {0.0, 100.0}) EXPECT_EQ(error_of({.num_requests = 1, .spread = spread}), "");
  for (const double spread : {-0.01, 100.5, static_cast<double>(NAN)})
    EXPECT_EQ(error_of({.spread = spread}), fmt::format("spread: is {}; use 0 to 100", spread));
  EXPECT_EQ(error_of({.num_prefixes = 0}), "prefixes: is 0; use 1 or more");
}

TEST(Generator, LengthsAreTheMeansWithoutSpread) {
  const Workload workload = generate_workload({.num_requests = 3,
                                               .rate_per_s = INFINITY,
                                               .input_tokens = 50.0,
                                               .output_tokens = 1.0,
                                               .spread = 0.0,
                                               .shared_tokens = 40,
                                               .seed = 6})
                                .value();
  EXPECT_EQ(workload.name, "generated");
  EXPECT_EQ(workload.id_tokens, 16U);
  EXPECT_EQ(workload.notes, (std::vector<std::string>{"Poisson arrivals at inf/s, log-normal lengths (seed 6)"}));
  ASSERT_EQ(workload.requests.size(), 3U);
  ASSERT_EQ(workload.runs.size(), 6U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    EXPECT_EQ(request.start_s, 0.0);
    EXPECT_EQ(request.after, kNoRequest);
    EXPECT_EQ(request.session, i);
    EXPECT_TRUE(request.ends_session);
    EXPECT_EQ(request.prompt_tokens, 50U);
    EXPECT_EQ(request.output_tokens, 1U);
    EXPECT_EQ(request.first_run, 2 * i);
    EXPECT_EQ(request.num_runs, 2U);
    EXPECT_EQ(workload.runs[std::size_t{2} * i].first, 0U);
    EXPECT_EQ(workload.runs[std::size_t{2} * i].count, 2U) << "the full blocks of 40 shared tokens";
    EXPECT_EQ(workload.runs[2 * i + 1].count, 1U) << "the other full block";
  }
  std::set<std::uint64_t> separate;
  for (const std::size_t run : {1U, 3U, 5U}) separate.insert(workload.runs[run].first);
  EXPECT_EQ(separate.size(), 3U);
}

TEST(Generator, LengthsStayWithinTheirBounds) {
  const auto draw = [](double mean, double spread, std::uint32_t shared) {
    std::pair<std::uint32_t, std::uint32_t> bounds = {UINT32_MAX, 0};
    const Workload workload =
        generate_workload({.num_requests = 1000, .input_tokens = mean, .output_tokens = mean, .spread = spread, .shared_tokens = shared})
            .value();
    for (const WorkloadRequest& request : workload.requests) {
      EXPECT_GT(request.prompt_tokens, shared);
      bounds = {std::min(bounds.first, request.output_tokens), std::max(bounds.second, request.output_tokens)};
    }
    return bounds;
  };
  EXPECT_EQ(draw(1.0, 100.0, 0).first, 1U);
  EXPECT_EQ(draw(1e8, 100.0, 0).second, 268435456U);
  EXPECT_EQ(draw(1e8, 0.0, 0), std::pair(100000000U, 100000000U));
  EXPECT_EQ(draw(3.0, 0.0, 100), std::pair(3U, 3U));
}

TEST(Generator, DrawsAllPrefixesAndSpreadsLengths) {
  constexpr std::uint32_t kCount = 20'000;
  const Workload workload = generate_workload({.num_requests = kCount,
                                               .rate_per_s = 10.0,
                                               .input_tokens = 5000.0,
                                               .output_tokens = 2000.0,
                                               .spread = 0.5,
                                               .shared_tokens = 32,
                                               .num_prefixes = 3})
                                .value();
  std::set<std::uint64_t> prefixes;
  double input = 0.0, square = 0.0, gap = 0.0, gap_square = 0.0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const WorkloadRequest& request = workload.requests[i];
    prefixes.insert(workload.runs[request.first_run].first);
    input += request.prompt_tokens, square += static_cast<double>(request.prompt_tokens) * request.prompt_tokens;
    if (i == 0) continue;
    const double seconds = request.start_s - workload.requests[i - 1].start_s;
    EXPECT_GE(seconds, 0.0);
    gap += seconds, gap_square += seconds * seconds;
  }
  EXPECT_EQ(prefixes, (std::set<std::uint64_t>{0, std::uint64_t{1} << 32U, std::uint64_t{2} << 32U}));
  const double mean = input / kCount;
  EXPECT_NEAR(mean, 5000.0, 75.0);
  EXPECT_NEAR(std::sqrt(square / kCount - mean * mean), 2500.0, 125.0);
  // The standard deviation of the gaps of Poisson arrivals equals their mean.
  EXPECT_NEAR(gap / kCount, 0.1, 0.003);
  EXPECT_NEAR(std::sqrt(gap_square / kCount - gap * gap / kCount / kCount), 0.1, 0.005);
}

}  // namespace
}  // namespace quire
