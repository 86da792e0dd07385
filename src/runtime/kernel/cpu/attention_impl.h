#pragma once
// Paged attention over Vec; include a vec_*.h first. attention.h has the contract, and reference/attention.cpp defines the bits.
//
// Up to 32 rows times the query heads of one KV head process the keys in tiles of 64. The keys of a tile are transposed and widened once,
// the values are widened once. A few queries at a time then compute scores, exponentials and the weighted sum of values. A decoding row
// with few query heads uses each key and value only once, so it reads the cache directly, without the scratch. The next tile is prefetched,
// because blocks are scattered in memory and hardware prefetchers do not predict their addresses. One file per instruction set includes
// this header; all functions are local to that file. The decoder calls attention on every thread of the pool, each with separate scratch,
// after the keys and values were written to the cache.
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/kernel/attention_scratch.h"
#include "runtime/kernel/cpu/attention_scores.h"
#include "runtime/kernel/cpu/attention_tile.h"
#include "runtime/kernel/cpu/flush_denormals.h"
#include "runtime/kernel/cpu/vec_math.h"

namespace quire {
namespace {

// Range of the tile's tokens that a query sees.
struct VisibleRange {
  std::uint32_t begin;
  std::uint32_t end;

  [[nodiscard]] bool is_full_tile() const { return begin == 0 && end == kTileTokens; }
  // Returns `values`, which belong to tokens from 16 * sub on, with `other` in the lanes of tokens that the query does not see.
  [[nodiscard]] Vec keep(Vec values, std::uint32_t sub, Vec other) const {
    const Vec before_end = values.keep_first(end > 16 * sub ? end - 16 * sub : 0, other);
    return begin <= 16 * sub ? before_end : other.keep_first(begin - 16 * sub, before_end);
  }
};

VisibleRange visible_range(const Pass& pass, std::uint32_t query, const Tile& tile) {
  const std::uint32_t position = pass.position(query);
  const std::uint32_t begin = pass.begin(query);
  const std::uint32_t end = position < tile.first ? 0 : position - tile.first + 1;
  return {begin > tile.first ? begin - tile.first : 0, end < tile.count ? end : tile.count};
}

// Updates the query's maximum and sum with the maximum and sum of a tile. Returns the factor for the query's earlier output sums.
float compute_sum(const Pass& pass, std::uint32_t query, float maximum, float sum) {
  float lanes[16] = {1.0F};  // exp(0), as exp_polynomial() computes it
  const float before = std::exchange(pass.scratch.maxima[query], maximum);
  if (before != maximum) exp_polynomial(Vec::set(before - maximum)).store(lanes);
  Vec::fma(Vec::set(pass.scratch.sums[query]), Vec::set(lanes[0]), Vec::set(sum)).store_first(&pass.scratch.sums[query], 1);
  return lanes[0];
}

template <int>
void store_as_bf16(Vec values, std::uint16_t* to);

// Stores 16 softmax weights over a query's scores. With in_pairs, the weights are rounded to bf16; if the processor multiplies pairs of
// bf16, they are stored as bf16.
void put_weights(const Pass& pass, float* scores, std::uint32_t sub, Vec weights) {
  if constexpr (Vec::kMultipliesPairs)
    store_as_bf16<0>(weights, reinterpret_cast<std::uint16_t*>(scores) + std::size_t{16} * sub);
  else
    (pass.item->in_pairs ? weights.to_bf16() : weights).store(scores + std::size_t{16} * sub);
}

// Turns the scores of one query into softmax weights, in place. Updates the query's maximum and sum, and returns the factor for its earlier
// output sums. This is the online softmax of the contract: a new maximum scales down the earlier sums.
float compute_weights(const Pass& pass, std::uint32_t query, float* scores, VisibleRange seen, std::uint32_t num_subtiles) {
  if (seen.begin >= seen.end) {
    for (std::uint32_t sub = 0; sub < num_subtiles; ++sub) put_weights(pass, scores, sub, Vec::zero());
    return 1.0F;
  }
  const Vec lowest = Vec::set(-INFINITY);
  Vec largest = lowest;
  for (std::uint32_t sub = 0; sub < num_subtiles; ++sub)
    largest = Vec::max(seen.keep(Vec::load(scores + std::size_t{16} * sub), sub, lowest), largest);
  const float before = pass.scratch.maxima[query];
  const float tile_maximum = largest.largest();
  const float maximum = tile_maximum > before ? tile_maximum : before;
  Vec sums = Vec::zero();
  for (std::uint32_t sub = 0; sub < num_subtiles; ++sub) {
    const Vec p = seen.keep(exp_polynomial(Vec::load(scores + std::size_t{16} * sub) - Vec::set(maximum)), sub, Vec::zero());
    put_weights(pass, scores, sub, p);
    sums = sums + p;
  }
  return compute_sum(pass, query, maximum, sums.sum());
}

// Does the work of compute_weights() for R queries that see a whole tile. The queries are interleaved, because a single query waits for
// each maximum and sum.
template <int R>
[[gnu::noinline]] void compute_full_tile_weights(const Pass& pass, std::uint32_t query, float* factors) {
  Vec largest[R];
  float maxima[R];
  Vec sums[R];
  for (int r = 0; r < R; ++r) largest[r] = Vec::set(-INFINITY);
  for (std::uint32_t sub = 0; sub < kSubtiles; ++sub)
    for (int r = 0; r < R; ++r) largest[r] = Vec::max(Vec::load(pass.scratch.scores + r * kTileTokens + 16 * sub), largest[r]);
  for (int r = 0; r < R; ++r) {
    const float before = pass.scratch.maxima[query + static_cast<std::uint32_t>(r)];
    const float tile_maximum = largest[r].largest();
    maxima[r] = tile_maximum > before ? tile_maximum : before;
    sums[r] = Vec::zero();
  }
  for (std::uint32_t sub = 0; sub < kSubtiles; ++sub) {
    for (int r = 0; r < R; ++r) {
      float* scores = pass.scratch.scores + r * kTileTokens;
      const Vec p = exp_polynomial(Vec::load(scores + 16 * sub) - Vec::set(maxima[r]));
      put_weights(pass, scores, sub, p);
      sums[r] = sums[r] + p;
    }
  }
  for (int r = 0; r < R; ++r) factors[r] = compute_sum(pass, query + static_cast<std::uint32_t>(r), maxima[r], sums[r].sum());
}

// Multiplies the weights of R queries by the int8 scales of the values. Called after the weights are summed.
template <int R>
void scale_weights(const Pass& pass, const Tile& tile, std::uint32_t num_subtiles) {
  for (int r = 0; r < R; ++r) {
    for (std::uint32_t sub = 0; sub < num_subtiles; ++sub) {
      float* const weights = pass.scratch.scores + r * kTileTokens + std::size_t{16} * sub;
      (Vec::load(weights) * Vec::load(tile.value_scales + std::size_t{16} * sub)).store(weights);
    }
  }
}

template <int R, int C, class Load>
void add_value_pairs(const Pass& pass, std::uint32_t query, const float* factors, VisibleRange tokens, std::uint32_t d, Load load);

// Returns the token that is added at step `t` of `tokens`. In pairs, the odd token is added before the even token if the query sees both.
template <bool kPairs>
std::uint32_t in_order(std::uint32_t t, VisibleRange tokens) {
  const std::uint32_t other = t ^ 1U;
  return kPairs && other >= tokens.begin && other < tokens.end ? other : t;
}

// Adds weighted values to C vectors, from dim d on, of R outputs. load(t, i) returns vector i of the values of token t, or of the pair that
// begins with token t.
template <int R, int C, bool kPairs, class Load>
void add_values(const Pass& pass, std::uint32_t query, const float* factors, VisibleRange tokens, std::uint32_t d, Load load) {
  if constexpr (Vec::kMultipliesPairs) return add_value_pairs<R, C>(pass, query, factors, tokens, d, load);
  const std::uint32_t dim = pass.layer->head_dim;
  float* out = pass.scratch.out + std::size_t{query} * dim + d;
  const float* p = pass.scratch.scores;
  Vec acc[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = Vec::load(out + r * dim + 16 * c) * Vec::set(factors[r]);
  for (std::uint32_t i = tokens.begin; i < tokens.end; ++i) {
    const std::uint32_t t = in_order<kPairs>(i, tokens);
    Vec v[C];
    for (int c = 0; c < C; ++c) v[c] = load(t, c);
    for (int r = 0; r < R; ++r) {
      const Vec weight = Vec::set(p[r * kTileTokens + t]);
      for (int c = 0; c < C; ++c) acc[r][c] = Vec::fma(weight, v[c], acc[r][c]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c].store(out + r * dim + 16 * c);
}

// Processes R queries against the tile in the scratch.
template <int R, bool kPairs>
[[gnu::noinline]] void attend_tile(const Pass& pass, std::uint32_t query, const Tile& tile) {
  // Tokens that at least one of the queries sees, because windows move with the rows.
  const VisibleRange seen{visible_range(pass, query, tile).begin, visible_range(pass, query + R - 1, tile).end};
  if (seen.begin >= seen.end) return;
  const std::uint32_t num_subtiles = (seen.end + 15) / 16;
  compute_scores<R, kPairs>(pass, tile, query, num_subtiles);
  float factors[R];
  const bool whole = visible_range(pass, query, tile).is_full_tile() && visible_range(pass, query + R - 1, tile).is_full_tile();
  if (whole) compute_full_tile_weights<R>(pass, query, factors);
  for (int r = 0; r < R && !whole; ++r) {
    const std::uint32_t one = query + static_cast<std::uint32_t>(r);
    factors[r] = compute_weights(pass, one, pass.scratch.scores + r * kTileTokens, visible_range(pass, one, tile), num_subtiles);
  }
  if (pass.layer->dtype == KvDtype::int8) scale_weights<R>(pass, tile, num_subtiles);
  const std::uint32_t dim = pass.layer->head_dim;
  std::uint32_t d = 0;
  const auto load = [&](std::uint32_t t, int c) { return Vec::load(pass.scratch.values + std::size_t{t} * dim + d + 16 * c); };
  for (; d + 16 * Vec::kValueVectors <= dim; d += 16 * Vec::kValueVectors)
    add_values<R, Vec::kValueVectors, kPairs>(pass, query, factors, seen, d, load);
  for (; d < dim; d += 16) add_values<R, 1, kPairs>(pass, query, factors, seen, d, load);
}

template <int>
Vec value_pair(const Tile& tile, VisibleRange seen, std::uint32_t pair, std::uint32_t d);

// Processes one row with R query heads, which all see the same part of the tile. The next tile's keys are prefetched during the products
// with this tile's keys, and its values during the products with this tile's values. If all prefetches were issued together, they would
// exceed the number of loads in flight, and memory would be idle afterwards.
template <int R, bool kPairs>
[[gnu::noinline]] void attend_tile_once(const Pass& pass, const Tile& tile, const Tile& next) {
  compute_scores_once<R, kPairs>(pass, tile, next);
  const VisibleRange seen = visible_range(pass, 0, tile);
  float factors[R];
  if (seen.is_full_tile()) compute_full_tile_weights<R>(pass, 0, factors);
  for (int r = 0; r < R && !seen.is_full_tile(); ++r)
    factors[r] = compute_weights(pass, static_cast<std::uint32_t>(r), pass.scratch.scores + r * kTileTokens, seen, (tile.count + 15) / 16);
  std::uint32_t d = 0;
  const auto fetch_beside = [&](std::uint32_t t, int c) {
    if (c == 0 && d == 0) fetch_values(pass, next, t, t + 1);
  };
  fetch_values(pass, next, tile.count, kTileTokens);
  const auto add_all = [&](auto load) {
    for (; d + 16 * Vec::kValueVectors <= pass.layer->head_dim; d += 16 * Vec::kValueVectors)
      add_values<R, Vec::kValueVectors, kPairs>(pass, 0, factors, seen, d, load);
    for (; d < pass.layer->head_dim; d += 16) add_values<R, 1, kPairs>(pass, 0, factors, seen, d, load);
  };
  if constexpr (Vec::kMultipliesPairs)
    return add_all([&](std::uint32_t pair, int c) {
      fetch_beside(2 * pair, c);
      fetch_beside(2 * pair + 1, c);
      return value_pair<0>(tile, seen, pair, d + 16 * static_cast<std::uint32_t>(c));
    });
  if (pass.layer->dtype == KvDtype::bf16)
    return add_all([&](std::uint32_t t, int c) {
      fetch_beside(t, c);
      return Vec::load_bf16(reinterpret_cast<const std::uint16_t*>(tile.values[t]) + d + 16 * c);
    });
  scale_weights<R>(pass, tile, (tile.count + 15) / 16);
  add_all([&](std::uint32_t t, int c) {
    fetch_beside(t, c);
    return Vec::load_i8(reinterpret_cast<const std::uint8_t*>(tile.values[t]) + d + 16 * c);
  });
}

// Processes R queries at a time and the remaining queries in smaller groups, so that each loop has a constant number of registers.
template <int R, bool kPairs>
void attend_queries(const Pass& pass, std::uint32_t query, const Tile& tile) {
  for (; query + R <= pass.num_queries; query += R) attend_tile<R, kPairs>(pass, query, tile);
  if constexpr (R > 1) attend_queries<R - 1, kPairs>(pass, query, tile);
}

template <int R, bool kPairs>
void attend_once(const Pass& pass, const Tile& tile, const Tile& next) {
  if (pass.num_queries == R) return attend_tile_once<R, kPairs>(pass, tile, next);
  if constexpr (R > 1) attend_once<R - 1, kPairs>(pass, tile, next);
}

// Processes all queries against a tile.
template <bool kPairs>
void attend_to(const Pass& pass, const Tile& tile, const Tile& next, bool once) {
  if (once) return attend_once<Vec::kQueries, kPairs>(pass, tile, next);
  load_keys(pass, tile, next);
  load_values(pass, tile);
  attend_queries<Vec::kQueries, kPairs>(pass, 0, tile);
}

void begin_segment(const Pass& pass) {
  for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
    pass.scratch.maxima[i] = -INFINITY;
    pass.scratch.sums[i] = 0.0F;
  }
  const std::size_t floats = std::size_t{pass.num_queries} * pass.layer->head_dim;
  for (std::size_t at = 0; at < floats; at += 16) Vec::zero().store(pass.scratch.out + at);
}

// Finds the first tile that the next item sees; sets its count to 0 if there is no next item.
void find_next_item(const Pass& pass, Tile& tile) {
  tile.count = 0;
  if (pass.item->next == nullptr) return;
  const AttentionItem& item = *pass.item->next;
  Pass next = pass;
  next.item = &item;
  next.first_row = 0;
  const std::uint32_t seen = next.begin(0) / kTileTokens * kTileTokens;
  const std::uint32_t start = item.partials == nullptr ? 0 : item.first_segment * kSegmentTokens;
  const std::uint32_t first = seen > start ? seen : start;
  const std::uint32_t there = item.sharing != nullptr ? item.shared_tokens : item.first_position + item.rows - first;
  find_tile(next, first, there < kTileTokens ? there : kTileTokens, tile);
}

// Positions `first` to `last`; `first` is the start of a tile. With `is_continuation`, the scratch holds the earlier part of the segment.
struct PositionRange {
  std::uint32_t first;
  std::uint32_t last;
  bool is_continuation;

  // Finds the tile that begins at `begin`, without positions after `last`. Sets its count to 0 if `begin` is after `last`.
  void find(const Pass& pass, std::uint32_t begin, Tile& tile) const {
    tile.count = 0;
    if (begin <= last) find_tile(pass, begin, last - begin + 1 < kTileTokens ? last - begin + 1 : kTileTokens, tile);
  }
};

// Processes all queries over a range. Calls finish(segment) after each segment, while the scratch holds the segment's results.
// find_after(tile) finds the tile to prefetch after the range.
template <class Finish, class FindAfter>
void walk_segments(const Pass& pass, PositionRange range, Finish finish, FindAfter find_after) {
  const bool once = pass.num_queries == pass.item->group && pass.num_queries <= Vec::kQueries && pass.layer->dtype != KvDtype::f32;
  Tile tiles[2];
  Tile after;
  range.find(pass, range.first, tiles[0]);
  for (std::uint32_t sub = 0; sub < kSubtiles; ++sub) fetch_keys(pass, tiles[0], sub);
  fetch_values(pass, tiles[0], 0, kTileTokens);
  const std::uint32_t first = range.first / kTileTokens;
  for (std::uint32_t i = first; i <= range.last / kTileTokens; ++i) {
    Tile& tile = tiles[(i - first) % 2];
    Tile& next = tiles[(i - first + 1) % 2];
    range.find(pass, (i + 1) * kTileTokens, next);
    if (i % kSegmentTiles == 0 || (i == first && !range.is_continuation)) begin_segment(pass);
    if (next.count == 0) find_after(after);
    const Tile& fetched = next.count == 0 ? after : next;
    if (pass.layer->dtype == KvDtype::int8) load_scales(pass, tile);
    if (Vec::kMultipliesPairs || pass.item->in_pairs)
      attend_to<true>(pass, tile, fetched, once);
    else if constexpr (!Vec::kMultipliesPairs)
      attend_to<false>(pass, tile, fetched, once);
    if ((i + 1) % kSegmentTiles == 0 || next.count == 0) finish(i / kSegmentTiles);
  }
}

template <class Finish>
void walk_segments(const Pass& pass, std::uint32_t first, std::uint32_t last, Finish finish) {
  walk_segments(pass, {first, last, false}, finish, [&](Tile& tile) { find_next_item(pass, tile); });
}

// Joins (maximum, sum, out) of a part of the context with the totals of the context before it.
void join(float maximum, float sum, const float* out, std::uint32_t dim, float* total_maximum, float* total_sum, float* total_out) {
  const float largest = maximum > *total_maximum ? maximum : *total_maximum;
  const Vec a = exp_polynomial(Vec::set(*total_maximum - largest));
  const Vec b = exp_polynomial(Vec::set(maximum - largest));
  *total_maximum = largest;
  Vec::fma(Vec::set(*total_sum), a, Vec::set(sum) * b).store_first(total_sum, 1);
  for (std::uint32_t d = 0; d < dim; d += 16) Vec::fma(Vec::load(total_out + d), a, Vec::load(out + d) * b).store(total_out + d);
}

// Writes the output of the item's query head i, after all segments have joined.
void finish_head(const AttentionItem& item, std::uint32_t i, const float* out, float maximum, float sum, std::uint32_t dim,
                 float* quotient) {
  if (item.sinks == nullptr) {
    for (std::uint32_t d = 0; d < dim; d += 16) (Vec::load(out + d) / Vec::set(sum)).store(quotient + d);
    return;
  }
  const float sink = item.sinks[item.kv_head * item.group + i];
  const float largest = sink > maximum ? sink : maximum;
  const Vec factor = exp_polynomial(Vec::set(maximum - largest));
  const Vec total = Vec::fma(Vec::set(sum), factor, exp_polynomial(Vec::set(sink - largest)));
  for (std::uint32_t d = 0; d < dim; d += 16) (Vec::load(out + d) * factor / total).store(quotient + d);
}

// Joins the segment's results in the scratch with the totals of the queries that see the segment.
void fold_segment(const Pass& pass, std::uint32_t segment) {
  const AttentionScratch& s = pass.scratch;
  const std::uint32_t dim = pass.layer->head_dim;
  for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
    const std::uint32_t first = pass.begin(i) / kSegmentTokens;
    if (segment < first || pass.position(i) < segment * kSegmentTokens) continue;
    const float* out = s.out + std::size_t{i} * dim;
    float* total = s.total_out + std::size_t{i} * dim;
    if (segment > first) {
      join(s.maxima[i], s.sums[i], out, dim, &s.total_maxima[i], &s.total_sums[i], total);
      continue;
    }
    s.total_maxima[i] = s.maxima[i];
    s.total_sums[i] = s.sums[i];
    for (std::uint32_t d = 0; d < dim; d += 16) Vec::load(out + d).store(total + d);
  }
}

void finish_queries(const Pass& pass) {
  const std::uint32_t dim = pass.layer->head_dim;
  for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): check_attention() has seen the scratch
    finish_head(*pass.item, i % pass.item->group, pass.scratch.total_out + std::size_t{i} * dim, pass.scratch.total_maxima[i],
                pass.scratch.total_sums[i], dim, pass.out(i));
  }
}

void run_pass(const Pass& pass) {
  const std::uint32_t last = pass.position(pass.num_queries - 1);
  walk_segments(pass, pass.begin(0) / kTileTokens * kTileTokens, last, [&](std::uint32_t segment) { fold_segment(pass, segment); });
  finish_queries(pass);
}

// Turns one row of an item with `sharing` into an item without `sharing`, which uses the row's part of the scratch.
struct UnsharedRow {
  AttentionItem item;
  Pass pass;

  UnsharedRow(const Pass& shared, std::uint32_t row) : item(*shared.item), pass(shared) {
    const SharingRow& own = item.sharing[shared.first_row + row];
    item.q = own.q;
    item.out = own.out;
    item.rows = 1;
    item.first_position = own.position;
    item.blocks = own.blocks;
    item.sharing = nullptr;
    pass.item = &item;
    pass.first_row = 0;
    pass.num_queries = item.group;
    AttentionScratch& s = pass.scratch;
    const std::size_t at = std::size_t{row} * item.group;
    for (float** part : {&s.maxima, &s.sums, &s.total_maxima, &s.total_sums}) *part += at;
    for (float** part : {&s.queries, &s.out, &s.total_out}) *part += at * pass.layer->head_dim;
  }
  UnsharedRow(const UnsharedRow&) = delete;
  UnsharedRow& operator=(const UnsharedRow&) = delete;
};

// Processes all rows over the shared tokens, then each row over its remaining tokens. Each row has the same operations in the same order as
// without sharing.
void run_sharing(const Pass& pass) {
  const std::uint32_t shared = pass.item->shared_tokens;
  const std::uint32_t num_rows = pass.num_queries / pass.item->group;
  const auto find_own = [&](std::uint32_t row, Tile& tile) {
    if (row == num_rows) return find_next_item(pass, tile);
    const UnsharedRow own(pass, row);
    PositionRange{shared, own.item.first_position, true}.find(own.pass, shared, tile);
  };
  walk_segments(
      pass, {0, shared - 1, false},
      [&](std::uint32_t segment) {
        if ((segment + 1) * kSegmentTokens <= shared) fold_segment(pass, segment);
      },
      [&](Tile& tile) { find_own(0, tile); });
  for (std::uint32_t row = 0; row < num_rows; ++row) {
    const UnsharedRow own(pass, row);
    walk_segments(
        own.pass, {shared, own.item.first_position, true}, [&](std::uint32_t segment) { fold_segment(own.pass, segment); },
        [&](Tile& tile) { find_own(row + 1, tile); });
    finish_queries(own.pass);
  }
}

// Processes the item's segments of one row and writes each segment's results to `partials`.
void run_partial(const Pass& pass) {
  const std::uint32_t end = pass.item->end_segment * kSegmentTokens - 1;
  const std::uint32_t last = end < pass.item->first_position ? end : pass.item->first_position;
  const std::uint32_t start = pass.item->first_segment * kSegmentTokens;
  const std::uint32_t seen = pass.begin(0) / kTileTokens * kTileTokens;
  walk_segments(pass, seen > start ? seen : start, last, [&](std::uint32_t segment) {
    const AttentionPartial partial = partial_of(*pass.item, pass.layer->head_dim, segment);
    const std::uint32_t floats = pass.num_queries * pass.layer->head_dim;
    for (std::uint32_t at = 0; at < floats; at += 16) Vec::load(pass.scratch.out + at).store(partial.out + at);
    for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
      partial.maxima[i] = pass.scratch.maxima[i];
      partial.sums[i] = pass.scratch.sums[i];
    }
  });
}

void attend_impl(const PagedKvLayer& layer, const AttentionItem& item, std::byte* scratch) {
  std::optional<FlushDenormals> scope;
  if (item.in_pairs) scope.emplace();
  Pass pass{&layer, &item, layout_attention_scratch(reinterpret_cast<float*>(scratch), layer.head_dim, item.group), 0, 0};
  for (std::uint32_t row = 0; row < item.rows; row += kAttentionItemRows) {
    pass.first_row = row;
    pass.num_queries = (item.rows - row < kAttentionItemRows ? item.rows - row : kAttentionItemRows) * item.group;
    if (item.in_pairs) round_queries(pass);
    if (item.sharing != nullptr)
      run_sharing(pass);
    else
      item.partials == nullptr ? run_pass(pass) : run_partial(pass);
  }
}

[[maybe_unused]] void join_impl(const PagedKvLayer& layer, const AttentionItem& item) {
  std::optional<FlushDenormals> scope;
  if (item.in_pairs) scope.emplace();
  const std::uint32_t dim = layer.head_dim;
  for (std::uint32_t i = 0; i < item.group; ++i) {
    const AttentionPartial total = partial_of(item, dim, item.first_segment);
    for (std::uint32_t segment = item.first_segment + 1; segment < item.end_segment; ++segment) {
      const AttentionPartial next = partial_of(item, dim, segment);
      join(next.maxima[i], next.sums[i], next.out + std::size_t{i} * dim, dim, &total.maxima[i], &total.sums[i],
           total.out + std::size_t{i} * dim);
    }
    finish_head(item, i, total.out + std::size_t{i} * dim, total.maxima[i], total.sums[i], dim,
                item.out + (std::size_t{item.kv_head} * item.group + i) * dim);
  }
}

}  // namespace
}  // namespace quire
