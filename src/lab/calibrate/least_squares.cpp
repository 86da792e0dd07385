#include "lab/calibrate/least_squares.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace quire {
namespace {

// The normal equations. Each term is scaled by its own size, so that pivots are comparable.
struct NormalEquations {
  std::array<Terms, kNumTerms> matrix{};
  Terms right{}, unit{};
  double constant = 0.0;
};

NormalEquations make_equations(std::span<const Observation> observations) {
  NormalEquations equations;
  for (const Observation& one : observations)
    for (std::size_t i = 0; i < kNumTerms && one.value > 0.0; ++i) equations.unit[i] += std::abs(one.sizes[i] / one.value);
  for (double& unit : equations.unit) unit = unit > 0.0 ? unit : 1.0;
  for (const Observation& one : observations) {
    if (!(one.value > 0.0)) continue;
    Terms scaled;
    for (std::size_t i = 0; i < kNumTerms; ++i) scaled[i] = one.sizes[i] / one.value / equations.unit[i];
    for (std::size_t i = 0; i < kNumTerms; ++i) {
      for (std::size_t j = 0; j < kNumTerms; ++j) equations.matrix[i][j] += scaled[i] * scaled[j];
      equations.right[i] += scaled[i];
    }
    equations.constant += 1.0;
  }
  return equations;
}

// Solves the equations by Gauss-Jordan elimination over the terms whose bits are set in `set`. Returns nullopt if these terms are not
// linearly independent.
std::optional<Terms> solve(NormalEquations equations, unsigned set) {
  std::array<Terms, kNumTerms>& a = equations.matrix;
  for (std::size_t i = 0; i < kNumTerms; ++i) {
    if ((set >> i & 1U) == 0) continue;
    const double pivot = a[i][i];
    if (!(std::abs(pivot) > 1e-9)) return std::nullopt;
    for (std::size_t row = 0; row < kNumTerms; ++row) {
      if (row == i || (set >> row & 1U) == 0) continue;
      const double factor = a[row][i] / pivot;
      for (std::size_t column = 0; column < kNumTerms; ++column) a[row][column] -= factor * a[i][column];
      equations.right[row] -= factor * equations.right[i];
    }
  }
  Terms weights{};
  for (std::size_t i = 0; i < kNumTerms; ++i)
    if ((set >> i & 1U) != 0) weights[i] = equations.right[i] / a[i][i];
  return weights;
}

double squares(const NormalEquations& equations, const Terms& weights) {
  double sum = equations.constant;
  for (std::size_t i = 0; i < kNumTerms; ++i) {
    sum -= 2.0 * weights[i] * equations.right[i];
    for (std::size_t j = 0; j < kNumTerms; ++j) sum += weights[i] * weights[j] * equations.matrix[i][j];
  }
  return sum;
}

}  // namespace

Terms fit_non_negative(std::span<const Observation> observations, unsigned terms) {
  NormalEquations equations = make_equations(observations);
  // The scaling makes the column of each term sum to 1. The squares of its entries are then near 1 / n, and the factor n makes pivots
  // comparable.
  for (auto& row : equations.matrix)
    for (double& entry : row) entry *= equations.constant;
  for (double& entry : equations.right) entry *= equations.constant;
  equations.constant *= equations.constant;
  Terms best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned set = 1; set < 1U << kNumTerms; ++set) {
    if ((set & ~terms) != 0) continue;
    const std::optional<Terms> weights = solve(equations, set);
    if (!weights) continue;
    bool negative = false;
    for (const double weight : *weights) negative = negative || weight < 0.0;
    if (negative) continue;
    if (const double sum = squares(equations, *weights); sum < least) std::tie(least, best) = std::pair(sum, *weights);
  }
  for (std::size_t i = 0; i < kNumTerms; ++i) best[i] /= equations.unit[i];
  return best;
}

}  // namespace quire
