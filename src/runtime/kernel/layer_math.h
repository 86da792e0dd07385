#pragma once
// Arithmetic of layers with LayerNorm and GELU, once for all instruction sets: so little of a pass that plain code serves. Each row's
// numbers depend on the row alone.
#include <cstdint>

namespace quire {

// out = (x - mean) / sqrt(variance + epsilon) * weight + bias, over n values; out may be x. Sums are taken in 16 lanes, which are added up
// in order.
void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* out, std::uint32_t n);

// x = x / 2 * (1 + erf(x / sqrt(2))), with a quotient of polynomials for erf: within 5e-7 of it. NaN where x is NaN, or is infinite.
void gelu(float* x, std::uint32_t n);

}  // namespace quire
