#pragma once
// exp over Vec, with the operations of reference/math.h; include a vec_*.h first.
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

}  // namespace
}  // namespace quire
