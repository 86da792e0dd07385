#pragma once
// What integer products over Vec share; include a vec_*.h first. Contract in matmul.h.
#include "runtime/kernel/matmul.h"

namespace quire {
namespace {

// 16 scales (or minimums) of a block.
Vec load_scales(const std::uint8_t* at, std::uint32_t bytes) {
  return bytes == 2 ? Vec::load_f16(at) : Vec::load(reinterpret_cast<const float*>(at));
}

bool uses_integers(const PackedMatrix& w, const Activations& x) {
  return x.mode != ActivationMode::f32 && is_integer(w.format);
}

// The code that stands for 0 times the sum of the codes of scale group i of a group of 32 inputs, and that sum as the float that meets
// minimums.
template <WeightFormat kFormat, int kScales>
std::int32_t offset_of(const Activations& x, std::size_t at, int i) {
  if constexpr (kScales == 2) return zero_code(kFormat) * x.half_sums[2 * at + static_cast<std::size_t>(i)];
  return x.offsets[at] >> (zero_code(kFormat) == 8 ? 4 : 0);
}
template <int kScales>
float float_sum(const Activations& x, std::size_t at, int i) {
  return kScales == 2 ? static_cast<float>(x.half_sums[2 * at + static_cast<std::size_t>(i)]) * x.scales[at] : x.sums[at];
}

}  // namespace
}  // namespace quire
