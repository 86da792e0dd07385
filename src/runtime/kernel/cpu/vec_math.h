#pragma once
// exp over Vec, with the operations of reference/math.h; include a vec_*.h first.
namespace quire {
namespace {

Vec exp_polynomial(Vec x) {
  x = Vec::min(Vec::set(88.3F), Vec::max(Vec::set(-87.3F), x));  // in this order NaN stays NaN
  const Vec n = Vec::round(x * Vec::set(1.44269504F));
  Vec r = Vec::fma(n, Vec::set(-0.693359375F), x);
  r = Vec::fma(n, Vec::set(2.12194440e-4F), r);
  Vec p = Vec::fma(Vec::set(1.9875691500e-4F), r, Vec::set(1.3981999507e-3F));
  p = Vec::fma(p, r, Vec::set(8.3334519073e-3F));
  p = Vec::fma(p, r, Vec::set(4.1665795894e-2F));
  p = Vec::fma(p, r, Vec::set(1.6666665459e-1F));
  p = Vec::fma(p, r, Vec::set(5.0000001201e-1F));
  return (Vec::fma(p, r * r, r) + Vec::set(1.0F)) * Vec::power_of_two(n);
}

}  // namespace
}  // namespace quire
