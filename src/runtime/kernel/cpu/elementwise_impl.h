#pragma once
// Bodies of the elementwise kernels over Vec; include a vec_*.h first. kernel.h has the contracts, and reference/ defines the bits.
#include <cmath>

#include "runtime/kernel/cpu/vec_math.h"
#include "runtime/kernel/gate_constants.h"

namespace quire {
namespace {

// Calls body(offset, number of valid lanes) for each 16 of n values.
template <class Body>
void for_each_vec(std::uint32_t n, Body body) {
  for (std::uint32_t i = 0; i < n; i += 16) body(i, n - i < 16 ? n - i : 16U);
}

Vec load_some(const float* p, std::uint32_t valid) {
  return valid == 16 ? Vec::load(p) : Vec::load_first(p, valid);
}

void store_some(Vec v, float* p, std::uint32_t valid) {
  if (valid == 16)
    v.store(p);
  else
    v.store_first(p, valid);
}

void rms_norm_impl(const float* x, const float* weight, float epsilon, float* out, std::uint32_t n) {
  Vec squares = Vec::zero();
  for_each_vec(n, [&](std::uint32_t i, std::uint32_t valid) {
    const Vec v = load_some(x + i, valid);
    squares = Vec::fma(v, v, squares);
  });
  const float mean = squares.sum() / static_cast<float>(n);
  const Vec factor = Vec::set(mean < INFINITY ? 1.0F / std::sqrt(mean + epsilon) : NAN);
  for_each_vec(n, [&](std::uint32_t i, std::uint32_t valid) {
    store_some(load_some(x + i, valid) * factor * load_some(weight + i, valid), out + i, valid);
  });
}

void silu_mul_impl(const float* gate, const float* up, float* out, std::uint32_t n) {
  for_each_vec(n, [&](std::uint32_t i, std::uint32_t valid) {
    const Vec g = load_some(gate + i, valid);
    const Vec e = exp_polynomial(g * Vec::set(-1.0F));
    store_some(g / (Vec::set(1.0F) + e) * load_some(up + i, valid), out + i, valid);
  });
}

void sigmoid_mul_impl(const float* gate, const float* up, float* out, std::uint32_t n) {
  for_each_vec(n, [&](std::uint32_t i, std::uint32_t valid) {
    const Vec e = exp_polynomial(load_some(gate + i, valid) * Vec::set(-1.0F));
    store_some(load_some(up + i, valid) / (Vec::set(1.0F) + e), out + i, valid);
  });
}

void gelu_mul_impl(const float* gate, const float* up, float* out, std::uint32_t n) {
  for_each_vec(n, [&](std::uint32_t i, std::uint32_t valid) {
    const Vec g = load_some(gate + i, valid);
    const Vec inner = g * Vec::fma(g * g, Vec::set(gelu_constants::kCubic), Vec::set(gelu_constants::kLinear));
    const Vec e = exp_polynomial(inner * Vec::set(-1.0F));
    store_some(g / (Vec::set(1.0F) + e) * load_some(up + i, valid), out + i, valid);
  });
}

void swiglu_limited_impl(const float* gate, const float* up, float limit, float* out, std::uint32_t n) {
  const Vec most = Vec::set(limit);
  for_each_vec(n, [&](std::uint32_t i, std::uint32_t valid) {
    const Vec g = Vec::min(most, finite_or_nan(load_some(gate + i, valid)));  // in this order NaN stays NaN
    const Vec u = Vec::max(Vec::set(-limit), Vec::min(most, finite_or_nan(load_some(up + i, valid))));
    const Vec e = exp_polynomial(g * Vec::set(-kSwigluSlope));
    store_some(g / (Vec::set(1.0F) + e) * (u + Vec::set(1.0F)), out + i, valid);
  });
}

void soft_cap_impl(float* x, float cap, std::uint32_t n) {
  for_each_vec(
      n, [&](std::uint32_t i, std::uint32_t valid) { store_some(soft_capped(load_some(x + i, valid), Vec::set(cap)), x + i, valid); });
}

}  // namespace
}  // namespace quire
