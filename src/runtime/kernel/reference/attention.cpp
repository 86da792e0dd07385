// Paged attention in plain C++, which defines the contract of attention.h. Tests compare every fast kernel with it bit for bit, and
// processors without a fast kernel use it. Called on every thread of the pool, like the other kernels. Written for readability, not for
// speed. A change here changes the bits of all kernels.
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "runtime/kernel/attention_scratch.h"
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
  if (layer.dtype == KvDtype::int8) return static_cast<float>(static_cast<std::int8_t>(cache[at]));
  std::uint16_t bits = 0;
  std::memcpy(&bits, cache + at * 2, 2);
  return bf16_to_float(bits);
}

// Returns the factor of the codes in the row that begins at `at`.
float row_scale(const PagedKvLayer& layer, const std::byte* cache, std::size_t at) {
  float scale = 1.0F;
  if (layer.dtype == KvDtype::int8) std::memcpy(&scale, cache + at + layer.head_dim, sizeof scale);
  return scale;
}

std::size_t offset_of(const PagedKvLayer& layer, const AttentionItem& item, std::uint32_t position) {
  return item.blocks[position / layer.block_size].value * layer.block_stride + item.kv_head * layer.head_stride +
         position % layer.block_size * layer.token_stride;
}

// For AttentionItem::in_pairs, factor_of() rounds a factor of a product to bf16, and kept() flushes a denormal result to zero. Otherwise
// both return `value`.
float factor_of(const AttentionItem& item, float value) {
  return item.in_pairs ? bf16_to_float(float_to_bf16(flushed(value))) : value;
}
float kept(const AttentionItem& item, float value) {
  return item.in_pairs ? flushed(value) : value;
}

// Returns (acc + x[1] * y[1]) + x[0] * y[0] with fused multiply-adds, flushing denormal inputs and results to zero.
float add_pair(float acc, std::array<float, 2> x, std::array<float, 2> y) {
  acc = flushed(std::fma(x[1], flushed(y[1]), acc));
  return flushed(std::fma(x[0], flushed(y[0]), acc));
}

float score(const PagedKvLayer& layer, const AttentionItem& item, const float* q, std::uint32_t position) {
  const std::size_t at = offset_of(layer, item, position);
  float even = 0.0F;
  float odd = 0.0F;
  for (std::uint32_t d = 0; d < layer.head_dim; d += 2) {
    const std::array k{element(layer, layer.keys, at + d), element(layer, layer.keys, at + d + 1)};
    if (item.in_pairs) {
      even = add_pair(even, {factor_of(item, q[d]), factor_of(item, q[d + 1])}, k);
      continue;
    }
    even = std::fma(q[d], k[0], even);
    odd = std::fma(q[d + 1], k[1], odd);
  }
  const float chains = layer.dtype == KvDtype::int8 ? (even + odd) * row_scale(layer, layer.keys, at) : even + odd;
  const float product = chains * item.scale;
  if (item.soft_cap != 0.0F) return soft_capped(product, item.soft_cap);
  return std::isfinite(product) ? product : NAN;
}

// Softmax state of one query over a part of the context: the maximum score, the sum of the weights, and the weighted values. Weights are
// relative to exp(maximum).
struct Sums {
  float maximum = -INFINITY;
  float sum = 0.0F;
  float* out = nullptr;
};

// Processes tokens begin .. count - 1 of a tile.
void attend_tile(const PagedKvLayer& layer, const AttentionItem& item, const float* q, std::uint32_t tile, std::uint32_t begin,
                 std::uint32_t count, Sums& sums) {
  float p[kTileTokens] = {};
  float next = sums.maximum;
  for (std::uint32_t t = begin; t < count; ++t) {
    p[t] = score(layer, item, q, tile + t);
    next = p[t] > next ? p[t] : next;
  }
  Lanes lanes{};
  for (std::uint32_t t = begin; t < count; ++t) {
    p[t] = exp_polynomial(p[t] - next);
    lanes[t % 16] += p[t];
  }
  const float factor = exp_polynomial(sums.maximum - next);
  sums.sum = std::fma(sums.sum, factor, sum_lanes(lanes));
  sums.maximum = next;
  for (std::uint32_t t = begin; t < count && layer.dtype == KvDtype::int8; ++t)
    p[t] *= row_scale(layer, layer.values, offset_of(layer, item, tile + t));
  const auto value = [&](std::uint32_t t, std::uint32_t d) {
    return t < begin || t >= count ? 0.0F : element(layer, layer.values, offset_of(layer, item, tile + t) + d);
  };
  for (std::uint32_t d = 0; d < layer.head_dim; ++d) {
    float& out = sums.out[d];
    out = kept(item, out * factor);
    for (std::uint32_t t = begin; t < count && !item.in_pairs; ++t) out = std::fma(p[t], value(t, d), out);
    for (std::uint32_t t = begin & ~1U; t < count && item.in_pairs; t += 2)
      out = add_pair(out, {factor_of(item, p[t]), factor_of(item, p[t + 1])}, {value(t, d), value(t + 1, d)});
  }
}

void attend_segment(const PagedKvLayer& layer, const AttentionItem& item, const float* q, std::uint32_t position, std::uint32_t segment,
                    Sums& sums) {
  for (std::uint32_t d = 0; d < layer.head_dim; ++d) sums.out[d] = 0.0F;
  const std::uint32_t start = segment * kSegmentTokens;
  const std::uint32_t end = position + 1 - start < kSegmentTokens ? position + 1 : start + kSegmentTokens;
  const std::uint32_t seen = window_begin(item.window, position);
  const std::uint32_t begin = seen > start ? seen : start;
  for (std::uint32_t tile = begin / kTileTokens * kTileTokens; tile < end; tile += kTileTokens)
    attend_tile(layer, item, q, tile, begin > tile ? begin - tile : 0, end - tile < kTileTokens ? end - tile : kTileTokens, sums);
}

void join(const AttentionItem& item, const Sums& next, std::uint32_t head_dim, Sums& sums) {
  const float maximum = next.maximum > sums.maximum ? next.maximum : sums.maximum;
  const float a = exp_polynomial(sums.maximum - maximum);
  const float b = exp_polynomial(next.maximum - maximum);
  sums.maximum = maximum;
  sums.sum = std::fma(sums.sum, a, next.sum * b);
  for (std::uint32_t d = 0; d < head_dim; ++d) sums.out[d] = kept(item, std::fma(sums.out[d], a, kept(item, next.out[d] * b)));
}

// Writes the output of the item's query head i, after all segments have joined.
void finish(const PagedKvLayer& layer, const AttentionItem& item, std::uint32_t i, Sums sums, float* out) {
  float factor = 1.0F;
  if (item.sinks != nullptr) {
    const float sink = item.sinks[item.kv_head * item.group + i];
    const float maximum = sink > sums.maximum ? sink : sums.maximum;
    factor = exp_polynomial(sums.maximum - maximum);
    sums.sum = std::fma(sums.sum, factor, exp_polynomial(sink - maximum));
  }
  for (std::uint32_t d = 0; d < layer.head_dim; ++d)
    out[d] = kept(item, (item.sinks == nullptr ? sums.out[d] : kept(item, sums.out[d] * factor)) / sums.sum);
}

void attend_one(const PagedKvLayer& layer, const AttentionItem& item, std::uint32_t i, const float* q, std::uint32_t position, float* out) {
  float segment_out[kMaxHeadDim];
  Sums sums{.out = out};
  const std::uint32_t first = window_begin(item.window, position) / kSegmentTokens;
  attend_segment(layer, item, q, position, first, sums);
  for (std::uint32_t segment = first + 1; segment <= position / kSegmentTokens; ++segment) {
    Sums next{.out = segment_out};
    attend_segment(layer, item, q, position, segment, next);
    join(item, next, layer.head_dim, sums);
  }
  finish(layer, item, i, sums, out);
}

std::size_t head_offset(const PagedKvLayer& layer, const AttentionItem& item, std::uint32_t i) {
  return std::size_t{item.kv_head * item.group + i} * layer.head_dim;
}

void attend_partially(const PagedKvLayer& layer, const AttentionItem& item) {
  for (std::uint32_t segment = item.first_segment; segment < item.end_segment; ++segment) {
    const AttentionPartial partial = partial_of(item, layer.head_dim, segment);
    for (std::uint32_t i = 0; i < item.group; ++i) {
      Sums sums{.out = partial.out + std::size_t{i} * layer.head_dim};
      attend_segment(layer, item, item.q + head_offset(layer, item, i), item.first_position, segment, sums);
      partial.maxima[i] = sums.maximum;
      partial.sums[i] = sums.sum;
    }
  }
}

}  // namespace

void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch) {
  check_attention(layer, item, scratch.size());
  if (item.partials != nullptr) return attend_partially(layer, item);
  for (std::uint32_t row = 0; item.sharing != nullptr && row < item.rows; ++row) {
    const SharingRow& own = item.sharing[row];
    AttentionItem alone = item;
    alone.blocks = own.blocks;
    for (std::uint32_t i = 0; i < item.group; ++i) {
      const std::size_t head = head_offset(layer, item, i);
      attend_one(layer, alone, i, own.q + head, own.position, own.out + head);
    }
  }
  if (item.sharing != nullptr) return;
  for (std::uint32_t row = 0; row < item.rows; ++row) {
    for (std::uint32_t i = 0; i < item.group; ++i) {
      const std::size_t head = head_offset(layer, item, i);
      attend_one(layer, item, i, item.q + row * item.q_stride + head, item.first_position + row, item.out + row * item.out_stride + head);
    }
  }
}

void join_segments(const PagedKvLayer& layer, const AttentionItem& item) {
  check_join(layer, item);
  for (std::uint32_t i = 0; i < item.group; ++i) {
    const auto sums_of = [&](std::uint32_t segment) {
      const AttentionPartial partial = partial_of(item, layer.head_dim, segment);
      return Sums{partial.maxima[i], partial.sums[i], partial.out + std::size_t{i} * layer.head_dim};
    };
    Sums sums = sums_of(item.first_segment);
    for (std::uint32_t segment = item.first_segment + 1; segment < item.end_segment; ++segment)
      join(item, sums_of(segment), layer.head_dim, sums);
    finish(layer, item, i, sums, item.out + head_offset(layer, item, i));
  }
}

}  // namespace quire::reference
