// Attention with AttentionItem::in_pairs, for processors with vdpbf16ps. The instruction adds the products of a pair of dims to each of 16
// scores, and the products of a pair of tokens to each of 16 dims of an output. The contract in attention.h has the order of this
// instruction. In the scratch, keys are words, [4][head_dim / 2][16], and values are pairs of tokens, [32][head_dim]. Items without
// in_pairs use the AVX-512 kernel. Called on every thread of the pool, each with separate scratch.
#include "runtime/kernel/cpu/x86/vec_avx512.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/attention_impl.h"
#include "runtime/kernel/cpu/unrolled.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

// Returns c plus the products of 16 pairs of bf16.
Vec fma_pairs(Vec a, Vec b, Vec c) {
  return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}

template <int>
void store_as_bf16(Vec values, std::uint16_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values.v)));
}

// Returns 16 dims of two tokens, with the first token in the low halves. A null pointer gives zeros.
Vec pair_of(const std::byte* first, const std::byte* second) {
  const auto row = [](const std::byte* at) {
    return at == nullptr ? _mm512_setzero_si512() : _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  };
  return {_mm512_castsi512_ps(_mm512_or_si512(row(first), _mm512_slli_epi32(row(second), 16)))};
}

// Does not read tokens before the windows of all queries, which may belong to another request, and entries after the tile's tokens.
template <int>
void load_value_pairs(const Pass& pass, const Tile& tile) {
  const std::uint32_t dim = pass.layer->head_dim;
  const std::uint32_t begin = pass.begin(0) > tile.first ? pass.begin(0) - tile.first : 0;
  float* out = pass.scratch.values;
  for (std::uint32_t t = 0; t < tile.count; t += 2, out += dim) {
    const std::byte* const first = t < begin ? nullptr : tile.values[t];
    const std::byte* const second = t + 1 < begin || t + 1 >= tile.count ? nullptr : tile.values[t + 1];
    for (std::uint32_t d = 0; d < dim; d += 16)
      pair_of(first == nullptr ? nullptr : first + 2 * d, second == nullptr ? nullptr : second + 2 * d).store(out + d);
  }
}

template <int>
Vec value_pair(const Tile& tile, VisibleRange seen, std::uint32_t pair, std::uint32_t d) {
  const std::uint32_t t = 2 * pair;
  return pair_of(t < seen.begin ? nullptr : tile.values[t] + 2 * d, t + 1 >= seen.end ? nullptr : tile.values[t + 1] + 2 * d);
}

template <int R, int S>
void compute_scores_of_pairs(const Pass& pass, const Tile& tile, const float* const* q, std::uint32_t sub) {
  const std::uint32_t num_words = pass.layer->head_dim / 2;
  const std::size_t subtile = std::size_t{num_words} * 16;
  const float* k = pass.scratch.keys + sub * subtile;
  Vec acc[R][S];
  unrolled<R>([&](auto r) { unrolled<S>([&](auto s) { acc[r][s] = Vec::zero(); }); });
  for (std::uint32_t word = 0; word < num_words; ++word, k += 16) {
    Vec keys[S];
    unrolled<S>([&](auto s) { keys[s] = Vec::load(k + s * subtile); });
    unrolled<R>([&](auto r) {
      const Vec pair = Vec::set(q[r][word]);
      unrolled<S>([&](auto s) { acc[r][s] = fma_pairs(keys[s], pair, acc[r][s]); });
    });
  }
  unrolled<R>([&](auto r) {
    unrolled<S>([&](auto s) {
      const std::uint32_t at = sub + static_cast<std::uint32_t>(s);
      to_scores(pass, tile, at, acc[r][s]).store(pass.scratch.scores + r * kTileTokens + std::size_t{at} * 16);
    });
  });
}

template <int R, int N>
void add_pairs(const Words& words, const float* const* q, std::uint32_t dim, Vec* sums) {
  unrolled<N>([&](auto w) {
    const Vec keys{_mm512_castsi512_ps(words.v[w])};
    unrolled<R>([&](auto r) { sums[r] = fma_pairs(keys, Vec::set(q[r][dim / 2 + w]), sums[r]); });
  });
}

template <int R, int C, class Load>
void add_value_pairs(const Pass& pass, std::uint32_t query, const float* factors, VisibleRange tokens, std::uint32_t d, Load load) {
  const std::uint32_t dim = pass.layer->head_dim;
  float* out = pass.scratch.out + std::size_t{query} * dim + d;
  const float* p = pass.scratch.scores;
  Vec acc[R][C];
  unrolled<R>([&](auto r) { unrolled<C>([&](auto c) { acc[r][c] = Vec::load(out + r * dim + 16 * c) * Vec::set(factors[r]); }); });
  for (std::uint32_t pair = tokens.begin / 2; 2 * pair < tokens.end; ++pair) {
    Vec v[C];
    unrolled<C>([&](auto c) { v[c] = load(pair, c); });
    unrolled<R>([&](auto r) {
      const Vec weights = Vec::set(p[r * kTileTokens + pair]);
      unrolled<C>([&](auto c) { acc[r][c] = fma_pairs(v[c], weights, acc[r][c]); });
    });
  }
  unrolled<R>([&](auto r) { unrolled<C>([&](auto c) { acc[r][c].store(out + r * dim + 16 * c); }); });
}

}  // namespace

namespace avx512_bf16 {

void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch) {
  if (!item.in_pairs) return avx512::attend(layer, item, scratch);
  check_attention(layer, item, scratch.size());
  attend_impl(layer, item, scratch.data());
}

}  // namespace avx512_bf16
}  // namespace quire
