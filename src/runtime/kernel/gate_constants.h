#pragma once
// Constants of gated activations, the same in every implementation.
namespace quire {

// GELU with the tanh approximation: gelu(x) = x / (1 + exp(-x (kLinear + kCubic x^2))).
namespace gelu_constants {
inline constexpr float kLinear = 1.59576912F;    // 2 sqrt(2 / pi)
inline constexpr float kCubic = 7.13548163e-2F;  // 0.044715 kLinear
}  // namespace gelu_constants

// Slope of the sigmoid in gpt-oss's gate, with which it approximates GELU.
inline constexpr float kSwigluSlope = 1.702F;

}  // namespace quire
