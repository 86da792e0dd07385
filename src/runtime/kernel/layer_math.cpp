#include "runtime/kernel/layer_math.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace quire {
namespace {

constexpr std::uint32_t kLanes = 16;

template <class Term>
float sum_of(std::uint32_t n, Term term) {
  std::array<float, kLanes> lanes{};
  std::uint32_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  for (std::uint32_t lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  float sum = 0.0F;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Coefficients of erf(x) = x * P(x^2) / Q(x^2), fitted on [-4, 4]. Outside of this range, |erf| is almost 1.
constexpr std::array kNumerator{-2.72614225801306e-10F, 2.77068142495902e-08F,  -2.10102402082508e-06F, -5.69250639462346e-05F,
                                -7.34990630326855e-04F, -2.95459980854025e-03F, -1.60960333262415e-02F};
constexpr std::array kDenominator{-1.45660718464996e-05F, -2.13374055278905e-04F, -1.68282697438203e-03F, -7.37332916720468e-03F,
                                  -1.42647390514189e-02F};

float erf_quotient(float x) {
  const float clamped = std::min(4.0F, std::max(-4.0F, x));
  const float square = clamped * clamped;
  float above = kNumerator[0], below = kDenominator[0];
  for (std::size_t i = 1; i < kNumerator.size(); ++i) above = above * square + kNumerator[i];
  for (std::size_t i = 1; i < kDenominator.size(); ++i) below = below * square + kDenominator[i];
  return clamped * above / below;
}

}  // namespace

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* out, std::uint32_t n) {
  const float mean = sum_of(n, [x](std::uint32_t i) { return x[i]; }) / static_cast<float>(n);
  const float variance = sum_of(n, [x, mean](std::uint32_t i) { return (x[i] - mean) * (x[i] - mean); }) / static_cast<float>(n);
  const float scale = 1.0F / std::sqrt(variance + epsilon);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

void gelu(float* x, std::uint32_t n) {
  constexpr float kRootHalf = 0.70710678F;
  // x - x is 0 for finite x, and NaN otherwise.
  for (std::uint32_t i = 0; i < n; ++i) x[i] = 0.5F * x[i] * (1.0F + erf_quotient(x[i] * kRootHalf)) + (x[i] - x[i]);
}

}  // namespace quire
