#pragma once
// Layout of the scratch memory of attend(), in floats. Every part starts on a cache line.
#include <cstddef>
#include <cstdint>

#include "runtime/kernel/attention.h"

namespace quire {

struct AttentionScratch {
  float* keys;     // [4][head_dim][16]: one tile, transposed per 16 tokens
  float* values;   // [64][head_dim]
  float* queries;  // [queries][head_dim], for in_pairs: rounded to bf16, as floats or as pairs in half the space
  float* scores;   // [8][64]: queries that are processed together
  float* out;      // [queries][head_dim]
  float* maxima;   // [queries]
  float* sums;     // [queries]
  // Totals of the segments before the current one:
  float* total_out;     // [queries][head_dim]
  float* total_maxima;  // [queries]
  float* total_sums;    // [queries]
  std::size_t total_floats;
};

// Returns the parts of the scratch at `base`; with null, only total_floats is valid. The function is static so that each instruction set
// compiles a separate copy.
static inline AttentionScratch layout_attention_scratch(float* base, std::uint32_t head_dim, std::uint32_t group) {
  const std::size_t queries = std::size_t{kAttentionItemRows} * group;
  const std::size_t padded = (queries + 15) / 16 * 16;
  const std::size_t tile = std::size_t{kTileTokens} * head_dim;
  std::size_t at = 0;
  const auto take = [&](std::size_t floats) {
    float* part = base == nullptr ? nullptr : base + at;
    at += floats;
    return part;
  };
  AttentionScratch scratch{};
  scratch.keys = take(tile);
  scratch.values = take(tile);
  scratch.queries = take(queries * head_dim);
  scratch.scores = take(std::size_t{8} * kTileTokens);
  scratch.out = take(queries * head_dim);
  scratch.maxima = take(padded);
  scratch.sums = take(padded);
  scratch.total_out = take(queries * head_dim);
  scratch.total_maxima = take(padded);
  scratch.total_sums = take(padded);
  scratch.total_floats = at;
  return scratch;
}

// The part of AttentionItem::partials that belongs to one segment.
struct AttentionPartial {
  float* out;     // [group][head_dim]
  float* maxima;  // [group]
  float* sums;    // [group]
};

static inline AttentionPartial partial_of(const AttentionItem& item, std::uint32_t head_dim, std::uint32_t segment) {
  float* out = item.partials + segment * attention_partial_floats(head_dim, item.group);
  float* maxima = out + std::size_t{item.group} * head_dim;
  return {out, maxima, maxima + (item.group + 15) / 16 * 16};
}

}  // namespace quire
