#pragma once
// Constants of all exponential functions in this code (after Cephes' expf):
// n = round(x / ln 2), r = x - n ln 2, exp(x) = 2^n (1 + r + r^2 p(r)).
//
// Only the constants are shared. The plain kernels, the vector kernels and the sampler implement the operations separately, because each
// must give fixed bits, and only some of them use fused multiply-add.
namespace quire::exp_constants {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kLn2High = 0.693359375F;  // the two constants add up to ln 2
inline constexpr float kLn2Low = -2.12194440e-4F;
inline constexpr float kFirst = 1.9875691500e-4F;  // p's coefficients, highest power first
inline constexpr float kRest[] = {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};

}  // namespace quire::exp_constants
