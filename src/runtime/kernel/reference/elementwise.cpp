#include <cmath>

#include "runtime/kernel/gate_constants.h"
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

void sigmoid_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) out[i] = up[i] / (1.0F + exp_polynomial(-gate[i]));
}

void gelu_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    const float inner = gate[i] * std::fma(gate[i] * gate[i], gelu_constants::kCubic, gelu_constants::kLinear);
    out[i] = gate[i] / (1.0F + exp_polynomial(-inner)) * up[i];
  }
}

void swiglu_limited(const float* gate, const float* up, float limit, float* out, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    const float g = std::isfinite(gate[i]) ? (gate[i] < limit ? gate[i] : limit) : NAN;
    const float most = up[i] < limit ? up[i] : limit;
    const float u = std::isfinite(up[i]) ? (most > -limit ? most : -limit) : NAN;
    out[i] = g / (1.0F + exp_polynomial(g * -kSwigluSlope)) * (u + 1.0F);
  }
}

void soft_cap(float* x, float cap, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] = soft_capped(x[i], cap);
}

}  // namespace quire::reference
