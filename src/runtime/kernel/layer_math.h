#pragma once
// LayerNorm and GELU, with one portable implementation, because they take little time of a pass. The result of each row depends only on the
// row.
#include <cstdint>

namespace quire {

// Computes out = (x - mean) / sqrt(variance + epsilon) * weight + bias, over n values; out may be x. Each sum uses 16 partial sums, which
// are added in order.
void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* out, std::uint32_t n);

// Computes x = x / 2 * (1 + erf(x / sqrt(2))) in place, or NaN where x is NaN or infinite. A quotient of polynomials approximates erf with
// an error of at most 5e-7.
void gelu(float* x, std::uint32_t n);

}  // namespace quire
