// Tests the simplex search: it visits the points that another implementation visits.
#include "lab/calibrate/simplex.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace quire {
namespace {

// A Python implementation of the paper visits the same points. The functions make it take every kind of step.
TEST(Simplex, VisitsThePointsOfThePaper) {
  struct Visits {
    std::size_t count = 0;
    double digest = 0.0;
    Point best;
  };
  const auto visit = [](const std::function<double(const Point&)>& function, const Point& start, double reach, std::uint32_t num_calls) {
    Visits visits;
    visits.best = search_minimum(
        [&](const Point& at) {
          ++visits.count;
          for (std::size_t i = 0; i < at.size(); ++i)
            visits.digest += static_cast<double>(visits.count) * static_cast<double>(i + 1) * at[i];
          return function(at);
        },
        start, reach, num_calls);
    return visits;
  };
  const auto expect = [](const Visits& visits, std::size_t count, double digest, const Point& best) {
    EXPECT_EQ(visits.count, count);
    EXPECT_NEAR(visits.digest, digest, 1e-8);
    ASSERT_EQ(visits.best.size(), best.size());
    for (std::size_t i = 0; i < best.size(); ++i) EXPECT_NEAR(visits.best[i], best[i], 1e-9);
  };
  const auto peak = [](const Point& p) { return std::abs(p[0] - 3.0) + 2.0 * std::abs(p[1] + 1.0); };
  expect(visit(peak, {0.0, 0.0}, 1.0, 40), 40, 691.9773098230362, {3.0, -1.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 0), 3, 8.0, {1.0, 0.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 3), 3, 8.0, {1.0, 0.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 4), 5, -8.5, {1.0, -1.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 5), 5, -8.5, {1.0, -1.0});
  const auto valley = [](const Point& p) { return std::pow(p[0] * p[0] - p[1], 2) + std::pow(1.0 - p[0], 2) / 4.0; };
  expect(visit(valley, {-1.5, 2.0}, 0.5, 60), 60, 3670.169694682583, {0.9907522201538086, 0.978339672088623});
  const auto line = [](const Point& p) { return std::abs(p[0] - 0.3); };
  expect(visit(line, {0.0}, 1.0, 20), 20, 62.0625, {0.30078125});
  // Steps between the minima make the simplex shrink.
  const auto steps = [](double a, double b, double fine) {
    const auto sum = static_cast<int>(std::floor(fine * a) + std::floor(fine * b));
    return ((sum % 3) + 3) % 3;
  };
  const auto two = [&](const Point& p) { return std::abs(p[0]) + std::abs(p[1]) + steps(p[0], p[1], 4.0); };
  expect(visit(two, {-2.0, -0.5}, 0.5, 40), 41, -1053.196620941162, {-1.037322998046875, -0.003021240234375});
  const auto three = [&](const Point& p) {
    return std::abs(p[0]) + 2.0 * std::abs(p[1]) + 3.0 * std::abs(p[2] - p[0]) + steps(p[0], p[2], 8.0);
  };
  expect(visit(three, {-2.0, -0.75, -0.75}, 0.5, 40), 41, -4532.765567306143,
         {-1.2480777815080253, -0.050742533255320216, -1.2886679201854887});
}

}  // namespace
}  // namespace quire
