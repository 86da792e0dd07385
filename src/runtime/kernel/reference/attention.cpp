#include <cmath>
#include <cstring>

#include "runtime/kernel/attention_scratch.h"
#include "runtime/kernel/half.h"
#include "runtime/kernel/implementations.h"
#include "runtime/kernel/reference/math.h"

namespace quire::reference {
namespace {

float element(const PagedKvLayer& layer, const std::byte* cache, std::size_t at) {
  if (layer.dtype == KvDtype::f32) {
    float value = 0.0F;
    std::memcpy(&value, cache + at * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, cache + at * 2, 2);
  return bf16_to_float(bits);
}

std::size_t offset_of(const PagedKvLayer& layer, const AttentionItem& item, std::uint32_t position) {
  return item.blocks[position / layer.block_size].value * layer.block_stride + item.kv_head * layer.head_stride +
         position % layer.block_size * layer.token_stride;
}

float score(const PagedKvLayer& layer, const AttentionItem& item, const float* q, std::uint32_t position) {
  const std::size_t at = offset_of(layer, item, position);
  float even = 0.0F;
  float odd = 0.0F;
  for (std::uint32_t d = 0; d < layer.head_dim; d += 2) {
    even = std::fma(q[d], element(layer, layer.keys, at + d), even);
    odd = std::fma(q[d + 1], element(layer, layer.keys, at + d + 1), odd);
  }
  return (even + odd) * item.scale;
}

void attend_one(const PagedKvLayer& layer, const AttentionItem& item, const float* q, std::uint32_t position, float* out) {
  float maximum = -INFINITY;
  float sum = 0.0F;
  for (std::uint32_t d = 0; d < layer.head_dim; ++d) out[d] = 0.0F;
  for (std::uint32_t tile = 0; tile <= position; tile += kTileTokens) {
    const std::uint32_t count = position - tile + 1 < kTileTokens ? position - tile + 1 : kTileTokens;
    float p[kTileTokens] = {};
    float next = maximum;
    for (std::uint32_t t = 0; t < count; ++t) {
      p[t] = score(layer, item, q, tile + t);
      next = p[t] > next ? p[t] : next;
    }
    Lanes sums{};
    for (std::uint32_t t = 0; t < count; ++t) {
      p[t] = exp_polynomial(p[t] - next);
      sums[t % 16] += p[t];
    }
    const float factor = exp_polynomial(maximum - next);
    sum = std::fma(sum, factor, sum_lanes(sums));
    maximum = next;
    for (std::uint32_t d = 0; d < layer.head_dim; ++d) {
      out[d] *= factor;
      for (std::uint32_t t = 0; t < count; ++t) {
        out[d] = std::fma(p[t], element(layer, layer.values, offset_of(layer, item, tile + t) + d), out[d]);
      }
    }
  }
  for (std::uint32_t d = 0; d < layer.head_dim; ++d) out[d] /= sum;
}

}  // namespace

void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch) {
  check_attention(layer, item, scratch.size());
  for (std::uint32_t row = 0; row < item.rows; ++row) {
    for (std::uint32_t i = 0; i < item.group; ++i) {
      const std::size_t head = std::size_t{item.kv_head * item.group + i} * layer.head_dim;
      attend_one(layer, item, item.q + row * item.q_stride + head, item.first_position + row, item.out + row * item.out_stride + head);
    }
  }
}

}  // namespace quire::reference
