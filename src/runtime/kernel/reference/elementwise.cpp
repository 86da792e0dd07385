#include <cmath>

#include "runtime/kernel/implementations.h"
#include "runtime/kernel/reference/math.h"

namespace quire::reference {

void rms_norm(const float* x, const float* weight, float epsilon, float* out, std::uint32_t n) {
  Lanes squares{};
  for (std::uint32_t i = 0; i < n; ++i) squares[i % 16] = std::fma(x[i], x[i], squares[i % 16]);
  const float mean = sum_lanes(squares) / static_cast<float>(n);
  const float factor = mean < INFINITY ? 1.0F / std::sqrt(mean + epsilon) : NAN;
  for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void silu_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0F + exp_polynomial(-gate[i])) * up[i];
}

}  // namespace quire::reference
