#pragma once
// Paged attention over Vec; include a vec_*.h first. Contract in attention.h, bits in reference/attention.cpp.
//
// Up to 32 rows times the query heads of one KV head walk over the keys in tiles of 64. Keys of a tile are transposed and widened once,
// values widened once; then a few queries at a time take scores, exponentials and the weighted sum of values.
#include <cmath>

#include "runtime/kernel/attention_scratch.h"
#include "runtime/kernel/cpu/vec_math.h"

namespace quire {
namespace {

constexpr std::uint32_t kSubtiles = kTileTokens / 16;

// What stays the same for the rows of one pass.
struct Pass {
  const PagedKvLayer* layer;
  const AttentionItem* item;
  AttentionScratch scratch;
  std::uint32_t first_row;
  std::uint32_t num_queries;  // rows * group; query i is head i % group of row i / group

  [[nodiscard]] std::uint32_t position(std::uint32_t query) const { return item->first_position + first_row + query / item->group; }
  [[nodiscard]] std::size_t head(std::uint32_t query) const {
    return std::size_t{item->kv_head * item->group + query % item->group} * layer->head_dim;
  }
  [[nodiscard]] const float* q(std::uint32_t query) const {
    return item->q + (first_row + query / item->group) * item->q_stride + head(query);
  }
  [[nodiscard]] float* out(std::uint32_t query) const {
    return item->out + (first_row + query / item->group) * item->out_stride + head(query);
  }
};

// Addresses of the K (or V) rows of tokens tile .. tile + 63; those from `count` on repeat the last one.
void find_rows(const Pass& pass, const std::byte* cache, std::uint32_t tile, std::uint32_t count, const std::byte** rows) {
  const PagedKvLayer& layer = *pass.layer;
  const std::size_t element_bytes = layer.dtype == KvDtype::f32 ? 4 : 2;
  for (std::uint32_t t = 0; t < kTileTokens; ++t) {
    if (t >= count) {
      rows[t] = rows[count - 1];
      continue;
    }
    const std::uint32_t position = tile + t;
    const std::size_t at = pass.item->blocks[position / layer.block_size].value * layer.block_stride +
                           pass.item->kv_head * layer.head_stride + position % layer.block_size * layer.token_stride;
    rows[t] = cache + at * element_bytes;
  }
}

void load_keys(const Pass& pass, std::uint32_t tile, std::uint32_t count) {
  const std::byte* rows[kTileTokens];
  find_rows(pass, pass.layer->keys, tile, count, rows);
  const std::uint32_t dim = pass.layer->head_dim;
  const bool full = pass.layer->dtype == KvDtype::f32;
  const std::uint32_t num_words = full ? dim : dim / 2;
  for (std::uint32_t sub = 0; sub * 16 < count; ++sub) {
    float* out = pass.scratch.keys + std::size_t{sub} * dim * 16;
    for (std::uint32_t first = 0; first < num_words; first += 16) {
      const std::uint32_t n = num_words - first < 16 ? num_words - first : 16;
      const Words words = Words::transpose(rows + std::size_t{16} * sub, std::size_t{4} * first, n);
      for (std::uint32_t w = 0; w < n; ++w) {
        if (full) {
          words.store(static_cast<int>(w), out + std::size_t{first + w} * 16);
        } else {
          float* even = out + std::size_t{first + w} * 32;
          words.store_bf16(static_cast<int>(w), even, even + 16);
        }
      }
    }
  }
}

void load_values(const Pass& pass, std::uint32_t tile, std::uint32_t count) {
  const std::byte* rows[kTileTokens];
  find_rows(pass, pass.layer->values, tile, count, rows);
  const std::uint32_t dim = pass.layer->head_dim;
  float* out = pass.scratch.values;
  for (std::uint32_t t = 0; t < count; ++t, out += dim) {
    for (std::uint32_t d = 0; d < dim; d += 16) {
      const Vec v = pass.layer->dtype == KvDtype::f32 ? Vec::load(reinterpret_cast<const float*>(rows[t]) + d)
                                                      : Vec::load_bf16(reinterpret_cast<const std::uint16_t*>(rows[t]) + d);
      v.store(out + d);
    }
  }
}

template <int R>
void take_scores(const Pass& pass, std::uint32_t query, std::uint32_t num_subtiles) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = pass.q(query + static_cast<std::uint32_t>(r));
  const std::uint32_t dim = pass.layer->head_dim;
  const Vec scale = Vec::set(pass.item->scale);
  for (std::uint32_t sub = 0; sub < num_subtiles; ++sub) {
    const float* k = pass.scratch.keys + std::size_t{sub} * dim * 16;
    Vec even[R];
    Vec odd[R];
    for (int r = 0; r < R; ++r) even[r] = odd[r] = Vec::zero();
    for (std::uint32_t d = 0; d < dim; d += 2, k += 32) {
      const Vec k0 = Vec::load(k);
      const Vec k1 = Vec::load(k + 16);
      for (int r = 0; r < R; ++r) even[r] = Vec::fma(Vec::set(q[r][d]), k0, even[r]);
      for (int r = 0; r < R; ++r) odd[r] = Vec::fma(Vec::set(q[r][d + 1]), k1, odd[r]);
    }
    for (int r = 0; r < R; ++r) ((even[r] + odd[r]) * scale).store(pass.scratch.scores + r * kTileTokens + sub * 16);
  }
}

// Scores of one query to weights, in place; updates its maximum and sum and returns the factor for what it has summed so far.
float take_weights(const Pass& pass, std::uint32_t query, float* scores, std::uint32_t valid, std::uint32_t num_subtiles) {
  const Vec lowest = Vec::set(-INFINITY);
  Vec largest = lowest;
  for (std::uint32_t sub = 0; sub < num_subtiles; ++sub) {
    const std::uint32_t left = valid > 16 * sub ? valid - 16 * sub : 0;
    largest = Vec::max(Vec::load(scores + std::size_t{16} * sub).keep_first(left, lowest), largest);
  }
  const float before = pass.scratch.maxima[query];
  const float tile_maximum = largest.largest();
  const float maximum = tile_maximum > before ? tile_maximum : before;
  Vec sums = Vec::zero();
  for (std::uint32_t sub = 0; sub < num_subtiles; ++sub) {
    const std::uint32_t left = valid > 16 * sub ? valid - 16 * sub : 0;
    const Vec p = exp_polynomial(Vec::load(scores + std::size_t{16} * sub) - Vec::set(maximum)).keep_first(left, Vec::zero());
    p.store(scores + std::size_t{16} * sub);
    sums = sums + p;
  }
  float lanes[16];
  exp_polynomial(Vec::set(before - maximum)).store(lanes);
  pass.scratch.maxima[query] = maximum;
  Vec::fma(Vec::set(pass.scratch.sums[query]), Vec::set(lanes[0]), Vec::set(sums.sum())).store_first(&pass.scratch.sums[query], 1);
  return lanes[0];
}

template <int R, int C>
void add_values(const Pass& pass, std::uint32_t query, const float* factors, std::uint32_t count, std::uint32_t d) {
  const std::uint32_t dim = pass.layer->head_dim;
  float* out = pass.scratch.out + std::size_t{query} * dim + d;
  const float* p = pass.scratch.scores;
  Vec acc[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) acc[r][c] = Vec::load(out + r * dim + 16 * c) * Vec::set(factors[r]);
  }
  const float* v = pass.scratch.values + d;
  for (std::uint32_t t = 0; t < count; ++t, v += dim) {
    for (int r = 0; r < R; ++r) {
      const Vec weight = Vec::set(p[r * kTileTokens + t]);
      for (int c = 0; c < C; ++c) acc[r][c] = Vec::fma(weight, Vec::load(v + 16 * c), acc[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) acc[r][c].store(out + r * dim + 16 * c);
  }
}

// R queries against the tile in the scratch; `count` tokens of it exist.
template <int R>
void attend_tile(const Pass& pass, std::uint32_t query, std::uint32_t tile, std::uint32_t count) {
  const std::uint32_t last = pass.position(query + R - 1);
  if (last < tile) return;
  const std::uint32_t seen = last - tile + 1 < count ? last - tile + 1 : count;
  const std::uint32_t num_subtiles = (seen + 15) / 16;
  take_scores<R>(pass, query, num_subtiles);
  float factors[R];
  for (int r = 0; r < R; ++r) {
    const std::uint32_t position = pass.position(query + static_cast<std::uint32_t>(r));
    const std::uint32_t valid = position < tile ? 0 : position - tile + 1 < seen ? position - tile + 1 : seen;
    float* scores = pass.scratch.scores + r * kTileTokens;
    factors[r] = take_weights(pass, query + static_cast<std::uint32_t>(r), scores, valid, num_subtiles);
  }
  std::uint32_t d = 0;
  for (; d + 16 * Vec::kValueVectors <= pass.layer->head_dim; d += 16 * Vec::kValueVectors) {
    add_values<R, Vec::kValueVectors>(pass, query, factors, seen, d);
  }
  for (; d < pass.layer->head_dim; d += 16) add_values<R, 1>(pass, query, factors, seen, d);
}

template <int R>
void attend_queries(const Pass& pass, std::uint32_t query, std::uint32_t tile, std::uint32_t count) {
  for (; query + R <= pass.num_queries; query += R) attend_tile<R>(pass, query, tile, count);
  if constexpr (R > 1) attend_queries<R - 1>(pass, query, tile, count);
}

void run_pass(const Pass& pass) {
  const std::uint32_t dim = pass.layer->head_dim;
  for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
    pass.scratch.maxima[i] = -INFINITY;
    pass.scratch.sums[i] = 0.0F;
    for (std::uint32_t d = 0; d < dim; d += 16) Vec::zero().store(pass.scratch.out + std::size_t{i} * dim + d);
  }
  const std::uint32_t last = pass.position(pass.num_queries - 1);
  for (std::uint32_t tile = 0; tile <= last; tile += kTileTokens) {
    const std::uint32_t count = last - tile + 1 < kTileTokens ? last - tile + 1 : kTileTokens;
    load_keys(pass, tile, count);
    load_values(pass, tile, count);
    attend_queries<Vec::kQueries>(pass, 0, tile, count);
  }
  for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
    const Vec sum = Vec::set(pass.scratch.sums[i]);
    for (std::uint32_t d = 0; d < dim; d += 16) (Vec::load(pass.scratch.out + std::size_t{i} * dim + d) / sum).store(pass.out(i) + d);
  }
}

void attend_impl(const PagedKvLayer& layer, const AttentionItem& item, std::byte* scratch) {
  Pass pass{&layer, &item, layout_attention_scratch(reinterpret_cast<float*>(scratch), layer.head_dim, item.group), 0, 0};
  for (std::uint32_t row = 0; row < item.rows; row += kAttentionItemRows) {
    pass.first_row = row;
    pass.num_queries = (item.rows - row < kAttentionItemRows ? item.rows - row : kAttentionItemRows) * item.group;
    run_pass(pass);
  }
}

}  // namespace
}  // namespace quire
