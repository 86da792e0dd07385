#pragma once
// exp and tanh over Vec, with the operations of reference/math.h; include a vec_*.h first.
#include "base/exp_constants.h"

namespace quire {
namespace {

Vec exp_polynomial(Vec x) {
  x = Vec::min(Vec::set(88.3F), Vec::max(Vec::set(-87.3F), x));  // in this order NaN stays NaN
  const Vec n = Vec::round(x * Vec::set(exp_constants::kLog2E));
  Vec r = Vec::fma(n, Vec::set(-exp_constants::kLn2High), x);
  r = Vec::fma(n, Vec::set(-exp_constants::kLn2Low), r);
  Vec p = Vec::set(exp_constants::kFirst);
  for (const float c : exp_constants::kRest) p = Vec::fma(p, r, Vec::set(c));
  return (Vec::fma(p, r * r, r) + Vec::set(1.0F)) * Vec::power_of_two(n);
}

Vec tanh_polynomial(Vec x) {
  const Vec y = Vec::set(2.0F) * Vec::min(Vec::set(20.0F), Vec::max(Vec::set(-20.0F), x));  // in this order NaN stays NaN
  const Vec n = Vec::round(y * Vec::set(exp_constants::kLog2E));
  Vec r = Vec::fma(n, Vec::set(-exp_constants::kLn2High), y);
  r = Vec::fma(n, Vec::set(-exp_constants::kLn2Low), r);
  Vec p = Vec::set(exp_constants::kFirst);
  for (const float c : exp_constants::kRest) p = Vec::fma(p, r, Vec::set(c));
  const Vec power = Vec::power_of_two(n);
  const Vec e = Vec::fma(Vec::fma(p, r * r, r), power, power - Vec::set(1.0F));
  return e / (e + Vec::set(2.0F));
}

// Returns x with NaN in place of infinite values.
Vec finite_or_nan(Vec x) {
  return Vec::fma(x, Vec::zero(), x);
}

[[maybe_unused]] Vec soft_capped(Vec x, Vec cap) {
  return cap * tanh_polynomial(finite_or_nan(x) / cap);
}

}  // namespace
}  // namespace quire
