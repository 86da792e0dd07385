#include <cmath>

#include "runtime/kernel/implementations.h"
#include "runtime/kernel/reference/math.h"

namespace quire::reference {

void rms_norm(const float* x, const float* weight, float epsilon, float* out, std::uint32_t n) {
  Lanes squares{};
  for (std::uint32_t i = 0; i < n; ++i) squares[i % 16] = std::fma(x[i], x[i], squares[i % 16]);
  const float factor = 1.0F / std::sqrt(sum_lanes(squares) / static_cast<float>(n) + epsilon);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void silu_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0F + exp_polynomial(-gate[i])) * up[i];
}

void softmax(float* x, std::uint32_t n) {
  float maximum = x[0];
  for (std::uint32_t i = 1; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  Lanes sums{};
  for (std::uint32_t i = 0; i < n; ++i) {
    x[i] = exp_polynomial(x[i] - maximum);
    sums[i % 16] += x[i];
  }
  const float sum = sum_lanes(sums);
  for (std::uint32_t i = 0; i < n; ++i) x[i] /= sum;
}

}  // namespace quire::reference
