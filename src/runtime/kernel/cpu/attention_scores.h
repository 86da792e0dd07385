#pragma once
// Computes scores of queries against a tile of keys, which are in the scratch or in the cache; include a vec_*.h first. Only
// attention_impl.h includes this header. Runs on every thread of the pool, each with separate scratch.
#include "runtime/kernel/cpu/attention_tile.h"
#include "runtime/kernel/cpu/vec_math.h"

namespace quire {
namespace {

// Turns products of queries and keys into scores. A score that is NaN or infinite becomes NaN, which makes the whole output of its row NaN
// and affects no other row.
Vec to_scores(const Pass& pass, const Tile& tile, std::uint32_t sub, Vec products) {
  if (pass.layer->dtype == KvDtype::int8) products = products * Vec::load(tile.key_scales + std::size_t{16} * sub);
  const Vec scores = products * Vec::set(pass.item->scale);
  return pass.item->soft_cap == 0.0F ? finite_or_nan(scores) : soft_capped(scores, Vec::set(pass.item->soft_cap));
}

// Computes scores of R queries against S subtiles from `sub` on. A query's value is loaded once and multiplied with the keys of all
// subtiles. In pairs, both dims of a pair are added to one sum, the odd dim first.
template <int R, int S, bool kPairs>
[[gnu::noinline]] void compute_scores_with(const Pass& pass, const Tile& tile, const float* const* q, std::uint32_t sub) {
  const std::uint32_t dim = pass.layer->head_dim;
  const std::size_t subtile = std::size_t{dim} * 16;
  const float* k = pass.scratch.keys + sub * subtile;
  Vec even[R][S];
  Vec odd[kPairs ? 1 : R][S];
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) even[r][s] = odd[kPairs ? 0 : r][s] = Vec::zero();
  for (std::uint32_t d = 0; d < dim; d += 2, k += 32) {
    Vec k0[S];
    Vec k1[S];
    for (int s = 0; s < S; ++s) k0[s] = Vec::load(k + s * subtile);
    for (int s = 0; s < S; ++s) k1[s] = Vec::load(k + s * subtile + 16);
    for (int r = 0; r < R; ++r) {
      const Vec q0 = Vec::set(q[r][d]);
      const Vec q1 = Vec::set(q[r][d + 1]);
      Vec(&of_odd)[S] = kPairs ? even[r] : odd[kPairs ? 0 : r];
      for (int s = 0; s < S; ++s) of_odd[s] = Vec::fma(q1, k1[s], of_odd[s]);
      for (int s = 0; s < S; ++s) even[r][s] = Vec::fma(q0, k0[s], even[r][s]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) {
      const std::uint32_t at = sub + static_cast<std::uint32_t>(s);
      const Vec products = kPairs ? even[r][s] : even[r][s] + odd[kPairs ? 0 : r][s];
      to_scores(pass, tile, at, products).store(pass.scratch.scores + r * kTileTokens + std::size_t{at} * 16);
    }
}

template <int R, int S>
void compute_scores_of_pairs(const Pass& pass, const Tile& tile, const float* const* q, std::uint32_t sub);

template <int R, bool kPairs>
void compute_scores(const Pass& pass, const Tile& tile, std::uint32_t query, std::uint32_t num_subtiles) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = pass.factor(query + static_cast<std::uint32_t>(r));
  constexpr int kTogether = kPairs ? Vec::kPairSubtiles : Vec::kScoreSubtiles;
  std::uint32_t sub = 0;
  if constexpr (Vec::kMultipliesPairs) {
    for (; sub + kTogether <= num_subtiles; sub += kTogether) compute_scores_of_pairs<R, kTogether>(pass, tile, q, sub);
    for (; sub < num_subtiles; ++sub) compute_scores_of_pairs<R, 1>(pass, tile, q, sub);
  } else {
    for (; sub + kTogether <= num_subtiles; sub += kTogether) compute_scores_with<R, kTogether, kPairs>(pass, tile, q, sub);
    for (; sub < num_subtiles; ++sub) compute_scores_with<R, 1, kPairs>(pass, tile, q, sub);
  }
}

template <int R, int N>
void add_pairs(const Words& words, const float* const* q, std::uint32_t dim, Vec* sums);

// Adds the products of R queries with N words of 16 keys (2 N dims from `dim` on). In pairs there is one sum, and the odd dim is added
// first.
template <int R, int N, bool kPairs>
void add_products(const Words& words, const float* const* q, std::uint32_t dim, Vec* even, Vec* odd) {
  if constexpr (Vec::kMultipliesPairs) return add_pairs<R, N>(words, q, dim, even);
  Vec* const of_odd = kPairs ? even : odd;
  for (int w = 0; w < N; ++w) {
    const Vec k0 = words.even(w);
    const Vec k1 = words.odd(w);
    for (int r = 0; r < R; ++r) of_odd[r] = Vec::fma(Vec::set(q[r][dim + 2 * static_cast<std::uint32_t>(w) + 1]), k1, of_odd[r]);
    for (int r = 0; r < R; ++r) even[r] = Vec::fma(Vec::set(q[r][dim + 2 * static_cast<std::uint32_t>(w)]), k0, even[r]);
  }
}

// Adds the products of R queries with N words of 16 keys in int8 codes (4 N dims from `dim` on).
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

// Like compute_scores() for queries 0 .. R - 1, but reads the keys from the cache instead of the scratch.
template <int R, bool kPairs>
[[gnu::noinline]] void compute_scores_once(const Pass& pass, const Tile& tile, const Tile& next) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = pass.factor(static_cast<std::uint32_t>(r));
  const std::uint32_t dim = pass.layer->head_dim;
  for (std::uint32_t sub = 0; sub * 16 < tile.count; ++sub) {
    fetch_keys(pass, next, sub);
    Vec even[R];
    Vec odd[R];
    for (int r = 0; r < R; ++r) even[r] = odd[r] = Vec::zero();
    std::uint32_t d = 0;
    for (; !kPairs && pass.layer->dtype == KvDtype::int8 && d < dim; d += 64) {
      const std::uint32_t n = dim - d < 64 ? (dim - d) / 4 : 16;
      add_products_of_codes<R>(Words::transpose(tile.keys + std::size_t{16} * sub, d, n), n, q, d, even, odd);
    }
    for (; d + 32 <= dim; d += 32)
      add_products<R, 16, kPairs>(Words::transpose(tile.keys + std::size_t{16} * sub, std::size_t{2} * d, 16), q, d, even, odd);
    if (d < dim) add_products<R, 8, kPairs>(Words::transpose(tile.keys + std::size_t{16} * sub, std::size_t{2} * d, 8), q, d, even, odd);
    for (int r = 0; r < R; ++r)
      to_scores(pass, tile, sub, kPairs ? even[r] : even[r] + odd[r]).store(pass.scratch.scores + r * kTileTokens + sub * 16);
  }
}

}  // namespace
}  // namespace quire
