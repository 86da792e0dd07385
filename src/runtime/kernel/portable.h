#pragma once
// Kernels with one implementation for every instruction set. Their contracts are in kernel.h.
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/kernel/attention.h"
#include "runtime/kernel/elementwise.h"

namespace quire::portable {

void write_kv(const PagedKvLayer& layer, const float* k, const float* v, std::size_t stride, std::span<const std::int64_t> slots);
void rope(RopeStyle style, float* x, std::uint32_t num_heads, std::uint32_t head_dim, std::uint32_t rotary_dim, const float* cosines,
          const float* sines);
void multiply(float* x, const float* y, std::uint32_t n);
void add(float* x, const float* y, std::uint32_t n);
void scale(float* x, float factor, std::uint32_t n);

}  // namespace quire::portable
