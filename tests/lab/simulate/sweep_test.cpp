#include <boost/json.hpp>

#include "lab/lab_support.h"

namespace quire {
namespace {

std::vector<SweepAxis> axes_of(std::initializer_list<std::string_view> texts) {
  std::vector<SweepAxis> axes;
  for (const std::string_view text : texts) axes.push_back(parse_sweep_axis(text).value());
  return axes;
}

TEST(Sweep, ReadsSizes) {
  const auto points = sweep_points({}, axes_of({"kv-dram=0,8G,512MiB"})).value();
  EXPECT_EQ(points[0].options.tier.bytes, 0U);
  EXPECT_EQ(points[1].options.tier.bytes, std::uint64_t{8} << 30U);
  EXPECT_EQ(points[2].options.tier.bytes, std::uint64_t{512} << 20U);
}

TEST(Sweep, HasAllCombinationsInOrder) {
  const auto axes = axes_of({"kv-blocks=100,200", "instances=1,2,4"});
  const auto points = sweep_points(test::small_options(true), axes).value();
  ASSERT_EQ(points.size(), 6U);
  EXPECT_EQ(points[4].values, (std::vector<std::string>{"200", "2"}));
  EXPECT_EQ(points[4].options.num_blocks, 200U);
  EXPECT_EQ(points[4].options.num_instances, 2U);
  EXPECT_EQ(points[4].options.block_size, 16U);
}

TEST(Sweep, EstimatesFromTheFirst200Requests) {
  Workload workload = test::random_workload(3, 201);
  const auto points = sweep_points(test::small_options(true), axes_of({"kv-blocks=500"})).value();
  workload.requests[200].prompt_tokens = 0;
  EXPECT_EQ(sweep(workload, points, 1).error().field, "requests[200]");
  EXPECT_TRUE(estimate_sweep_s(workload, points).has_value()) << "the last request is not simulated";
  workload.requests[199].prompt_tokens = 0;
  EXPECT_EQ(estimate_sweep_s(workload, points).error().field, "requests[199]");
  workload.requests.resize(199);
  EXPECT_TRUE(estimate_sweep_s(workload, points).has_value()) << "fewer requests are enough";
}

TEST(Sweep, GivesTheResultOfEachPoint) {
  const Workload workload = test::random_workload(2);
  const auto axes = axes_of({"kv-blocks=60,500", "scheduling-policy=fcfs,continuum", "routing=round-robin,least-loaded"});
  SimulationOptions base = test::small_options(true);
  base.num_instances = 2;
  const auto points = sweep_points(base, axes).value();
  double last = 0.0;
  const auto results = sweep(workload, points, 3, [&](double done) {
                         EXPECT_GE(done, last);
                         last = done;
                       }).value();
  EXPECT_EQ(last, 1.0);
  for (std::size_t i = 0; i < points.size(); ++i)
    EXPECT_EQ(simulation_json(results[i], points[i].options),
              simulation_json(simulate(workload, points[i].options).value(), points[i].options));
  EXPECT_EQ(boost::json::parse(sweep_json(axes, points, results)).as_array().size(), points.size());
  EXPECT_NE(sweep_table(axes, points, results).find("continuum"), std::string::npos);
}

TEST(Sweep, ReturnsTheErrorOfAPoint) {
  const auto points = sweep_points(test::small_options(true), axes_of({"block-size=16,24"})).value();
  EXPECT_EQ(sweep(test::random_workload(2), points, 2).error().field, "block_size");
}

TEST(Sweep, RefusesInvalidAxes) {
  for (const std::string_view text : {"", "kv-blocks", "kv-blocks=", "kv-blocks=1,x", "kv-blocks=-1", "colour=red", "routing=there",
                                      "instances=0", "kv-dram=1X", "kv-dram=G"})
    EXPECT_FALSE(parse_sweep_axis(text).has_value()) << text;
  std::string many = "kv-blocks=1";
  for (int i = 2; i <= 200; ++i) many += "," + std::to_string(i);
  EXPECT_FALSE(sweep_points({}, axes_of({many, many})).has_value());
}

TEST(Sweep, EstimateReturnsTheErrorOfAPoint) {
  const Workload workload = test::random_workload(2, 400);
  EXPECT_GT(estimate_sweep_s(workload, sweep_points(test::small_options(true), axes_of({"instances=1,2"})).value()).value(), 0.0);
  EXPECT_EQ(estimate_sweep_s(workload, sweep_points(test::small_options(true), axes_of({"block-size=16,24"})).value()).error().field,
            "block_size");
}

}  // namespace
}  // namespace quire
