#include <boost/json.hpp>

#include "lab/lab_support.h"

namespace quire {
namespace {

TEST(Report, JsonMatchesTheResult) {
  const SimulationOptions options = test::small_options(true);
  const auto result = simulate(test::random_workload(1), options).value();
  const boost::json::value json = boost::json::parse(simulation_json(result, options));
  EXPECT_EQ(json.at("num_finished").to_number<std::uint64_t>(), result.num_finished);
  EXPECT_NEAR(json.at("ttft_s").at("p90").to_number<double>(), result.ttft_s.p90, 1e-6 * result.ttft_s.p90);
  EXPECT_EQ(json.at("options").at("worker").at("source"), "round numbers");
  EXPECT_EQ(json.at("samples").as_array().size(), result.samples.size());
}

TEST(Report, TableHasTheSloAndTheRefusals) {
  SimulationOptions options = test::small_options(true);
  options.num_blocks = 5;
  options.slo_ttft_s = 2.0;
  const std::string table = simulation_table(simulate(test::random_workload(1), options).value(), options);
  EXPECT_NE(table.find("TTFT <= 2 s"), std::string::npos);
  EXPECT_NE(table.find("rejected"), std::string::npos);
}

TEST(Report, SamplesAreBounded) {
  const auto result = simulate(test::random_workload(1, 5000), test::small_options(true)).value();
  EXPECT_LE(result.samples.size(), 1000U);
  EXPECT_GE(result.samples.size(), 100U);
}

}  // namespace
}  // namespace quire
