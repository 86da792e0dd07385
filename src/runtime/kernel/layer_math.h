#pragma once
// LayerNorm and GELU, once for all instruction sets: they are such a small part of a pass that plain code is enough. The result of each row
// depends on the row alone.
#include <cstdint>

namespace quire {

// Computes out = (x - mean) / sqrt(variance + epsilon) * weight + bias, over n values; out may be x. Sums use 16 lanes, which are added up
// in order.
void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* out, std::uint32_t n);

// Computes x = x / 2 * (1 + erf(x / sqrt(2))). A quotient of polynomials approximates erf within 5e-7. Returns NaN for NaN and infinite x.
void gelu(float* x, std::uint32_t n);

}  // namespace quire
