#pragma once
// Scores of queries against a tile of keys, from the scratch or straight from the cache; include a vec_*.h first.
// Included by attention_impl.h alone; on every thread of the pool, each with scratch of its own.
#include "runtime/kernel/cpu/attention_tile.h"
#include "runtime/kernel/cpu/vec_math.h"

namespace quire {
namespace {

// Products of queries and keys to scores.
// A score that is NaN or infinite becomes NaN, so that it reaches the whole row and no other.
Vec to_scores(const Pass& pass, const Tile& tile, std::uint32_t sub, Vec products) {
  if (pass.layer->dtype == KvDtype::int8) products = products * Vec::load(tile.key_scales + std::size_t{16} * sub);
  const Vec scores = products * Vec::set(pass.item->scale);
  return pass.item->soft_cap == 0.0F ? finite_or_nan(scores) : soft_capped(scores, Vec::set(pass.item->soft_cap));
}

// S subtiles from `sub` on against R queries: a query's value, once loaded, meets the keys of all.
template <int R, int S>
void take_scores_of(const Pass& pass, const Tile& tile, const float* const* q, std::uint32_t sub) {
  const std::uint32_t dim = pass.layer->head_dim;
  const std::size_t subtile = std::size_t{dim} * 16;
  const float* k = pass.scratch.keys + sub * subtile;
  Vec even[R][S];
  Vec odd[R][S];
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) even[r][s] = odd[r][s] = Vec::zero();
  for (std::uint32_t d = 0; d < dim; d += 2, k += 32) {
    Vec k0[S];
    Vec k1[S];
    for (int s = 0; s < S; ++s) k0[s] = Vec::load(k + s * subtile);
    for (int s = 0; s < S; ++s) k1[s] = Vec::load(k + s * subtile + 16);
    for (int r = 0; r < R; ++r) {
      const Vec q0 = Vec::set(q[r][d]);
      const Vec q1 = Vec::set(q[r][d + 1]);
      for (int s = 0; s < S; ++s) even[r][s] = Vec::fma(q0, k0[s], even[r][s]);
      for (int s = 0; s < S; ++s) odd[r][s] = Vec::fma(q1, k1[s], odd[r][s]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) {
      const std::uint32_t at = sub + static_cast<std::uint32_t>(s);
      to_scores(pass, tile, at, even[r][s] + odd[r][s]).store(pass.scratch.scores + r * kTileTokens + std::size_t{at} * 16);
    }
}

template <int R>
void take_scores(const Pass& pass, const Tile& tile, std::uint32_t query, std::uint32_t num_subtiles) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = pass.q(query + static_cast<std::uint32_t>(r));
  std::uint32_t sub = 0;
  for (; sub + Vec::kScoreSubtiles <= num_subtiles; sub += Vec::kScoreSubtiles) take_scores_of<R, Vec::kScoreSubtiles>(pass, tile, q, sub);
  for (; sub < num_subtiles; ++sub) take_scores_of<R, 1>(pass, tile, q, sub);
}

// N words of 16 keys, that is 2 N dims from `dim` on, against R queries.
template <int R, int N>
void add_products(const Words& words, const float* const* q, std::uint32_t dim, Vec* even, Vec* odd) {
  for (int w = 0; w < N; ++w) {
    const Vec k0 = words.even(w);
    const Vec k1 = words.odd(w);
    for (int r = 0; r < R; ++r) even[r] = Vec::fma(Vec::set(q[r][dim + 2 * static_cast<std::uint32_t>(w)]), k0, even[r]);
    for (int r = 0; r < R; ++r) odd[r] = Vec::fma(Vec::set(q[r][dim + 2 * static_cast<std::uint32_t>(w) + 1]), k1, odd[r]);
  }
}

// N words of 16 keys in codes, that is 4 N dims from `dim` on.
template <int R>
void add_products_of_codes(const Words& words, std::uint32_t n, const float* const* q, std::uint32_t dim, Vec* even, Vec* odd) {
  for (std::uint32_t w = 0; w < n; ++w, dim += 4) {
    for (int i = 0; i < 4; ++i) {
      const Vec k = words.code(static_cast<int>(w), i);
      Vec* const sums = i % 2 == 0 ? even : odd;
      for (int r = 0; r < R; ++r) sums[r] = Vec::fma(Vec::set(q[r][dim + static_cast<std::uint32_t>(i)]), k, sums[r]);
    }
  }
}

// take_scores<R> of queries 0 .. R - 1, straight from the cache.
template <int R>
void take_scores_once(const Pass& pass, const Tile& tile, const Tile& next) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = pass.q(static_cast<std::uint32_t>(r));
  const std::uint32_t dim = pass.layer->head_dim;
  for (std::uint32_t sub = 0; sub * 16 < tile.count; ++sub) {
    fetch_keys(pass, next, sub);
    Vec even[R];
    Vec odd[R];
    for (int r = 0; r < R; ++r) even[r] = odd[r] = Vec::zero();
    std::uint32_t d = 0;
    for (; pass.layer->dtype == KvDtype::int8 && d < dim; d += 64) {
      const std::uint32_t n = dim - d < 64 ? (dim - d) / 4 : 16;
      add_products_of_codes<R>(Words::transpose(tile.keys + std::size_t{16} * sub, d, n), n, q, d, even, odd);
    }
    for (; d + 32 <= dim; d += 32)
      add_products<R, 16>(Words::transpose(tile.keys + std::size_t{16} * sub, std::size_t{2} * d, 16), q, d, even, odd);
    if (d < dim) add_products<R, 8>(Words::transpose(tile.keys + std::size_t{16} * sub, std::size_t{2} * d, 8), q, d, even, odd);
    for (int r = 0; r < R; ++r) to_scores(pass, tile, sub, even[r] + odd[r]).store(pass.scratch.scores + r * kTileTokens + sub * 16);
  }
}

}  // namespace
}  // namespace quire
