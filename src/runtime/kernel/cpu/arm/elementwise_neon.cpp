#include "runtime/kernel/cpu/arm/vec_neon.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/elementwise_impl.h"
#include "runtime/kernel/implementations.h"

namespace quire::neon {

void rms_norm(const float* x, const float* weight, float epsilon, float* out, std::uint32_t n) {
  rms_norm_impl(x, weight, epsilon, out, n);
}

void silu_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  silu_mul_impl(gate, up, out, n);
}

void sigmoid_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  sigmoid_mul_impl(gate, up, out, n);
}

void gelu_mul(const float* gate, const float* up, float* out, std::uint32_t n) {
  gelu_mul_impl(gate, up, out, n);
}

void swiglu_limited(const float* gate, const float* up, float limit, float* out, std::uint32_t n) {
  swiglu_limited_impl(gate, up, limit, out, n);
}
void soft_cap(float* x, float cap, std::uint32_t n) {
  soft_cap_impl(x, cap, n);
}

}  // namespace quire::neon
