#pragma once
// The rows of one pass of paged attention, and tiles of keys and values that are copied from the cache to the scratch; include a vec_*.h
// first. Included by attention_impl.h and attention_scores.h. Tiles are aligned to absolute positions, so the start of a chunk does not
// change which keys are summed together.
#include "runtime/kernel/attention_scratch.h"

namespace quire {
namespace {

constexpr std::uint32_t kSubtiles = kTileTokens / 16;
constexpr std::uint32_t kSegmentTiles = kSegmentTokens / kTileTokens;

// Data that all rows of one pass share.
struct Pass {
  const PagedKvLayer* layer;
  const AttentionItem* item;
  AttentionScratch scratch;
  std::uint32_t first_row;
  std::uint32_t num_queries;  // rows * group; query i is head i % group of row i / group

  [[nodiscard]] std::uint32_t position(std::uint32_t query) const {
    const std::uint32_t row = first_row + query / item->group;
    return item->sharing == nullptr ? item->first_position + row : item->sharing[row].position;
  }
  // Returns the first position that the query sees.
  [[nodiscard]] std::uint32_t begin(std::uint32_t query) const { return window_begin(item->window, position(query)); }
  [[nodiscard]] std::size_t head(std::uint32_t query) const {
    return std::size_t{item->kv_head * item->group + query % item->group} * layer->head_dim;
  }
  [[nodiscard]] const float* q(std::uint32_t query) const {
    const std::uint32_t row = first_row + query / item->group;
    return (item->sharing == nullptr ? item->q + row * item->q_stride : item->sharing[row].q) + head(query);
  }
  // Returns the query as it is multiplied with the keys: rounded to bf16 with in_pairs.
  [[nodiscard]] const float* factor(std::uint32_t query) const {
    return item->in_pairs ? scratch.queries + std::size_t{query} * layer->head_dim : q(query);
  }
  [[nodiscard]] float* out(std::uint32_t query) const {
    const std::uint32_t row = first_row + query / item->group;
    return (item->sharing == nullptr ? item->out + row * item->out_stride : item->sharing[row].out) + head(query);
  }
};

// Addresses of the keys and values of 64 positions from `first` on; the first `count` are used. Entries from `count` on repeat the last
// used one.
struct Tile {
  std::uint32_t first;
  std::uint32_t count;
  const std::byte* keys[kTileTokens];
  const std::byte* values[kTileTokens];
  // Scales of int8 keys and values; load_scales() sets `count` of them.
  float key_scales[kTileTokens];
  float value_scales[kTileTokens];
};

std::size_t element_bytes(const Pass& pass) {
  return element_bytes(pass.layer->dtype);
}

// Finds the addresses of a tile's keys and values. Tokens of a block are adjacent; blocks are scattered. Blocks before the window of the
// first query may already belong to other requests. The addresses of their tokens are therefore replaced by the address of the first token
// that the query sees; the replacements are loaded but masked.
void find_tile(const Pass& pass, std::uint32_t first, std::uint32_t count, Tile& tile) {
  const PagedKvLayer& layer = *pass.layer;
  tile.first = first;
  tile.count = count;
  const std::size_t bytes = element_bytes(pass);
  std::uint32_t block = first / layer.block_size;
  std::uint32_t offset = first % layer.block_size;
  for (std::uint32_t t = 0; t < count; ++block, offset = 0) {
    const std::size_t at = pass.item->blocks[block].value * layer.block_stride + pass.item->kv_head * layer.head_stride;
    for (; t < count && offset < layer.block_size; ++t, ++offset) {
      tile.keys[t] = layer.keys + (at + offset * layer.token_stride) * bytes;
      tile.values[t] = layer.values + (at + offset * layer.token_stride) * bytes;
    }
  }
  for (std::uint32_t t = count; t % 16 != 0; ++t) {
    tile.keys[t] = tile.keys[count - 1];
    tile.values[t] = tile.values[count - 1];
  }
  const std::uint32_t begin = pass.begin(0);
  for (std::uint32_t t = 0; first + t < begin; ++t) {
    tile.keys[t] = tile.keys[begin - first];
    tile.values[t] = tile.values[begin - first];
  }
}

// Prefetches a row of keys or values.
void fetch_row(const Pass& pass, const std::byte* row) {
  const std::size_t row_bytes = row_elements(pass.layer->dtype, pass.layer->head_dim) * element_bytes(pass);
  for (std::size_t at = 0; at < row_bytes; at += 64) __builtin_prefetch(row + at);
}

// fetch_keys() prefetches the keys of tokens 16 * sub .. 16 * sub + 15 of a tile, fetch_values() the values of tokens `begin` to `end`, up
// to the tile's count.
void fetch_keys(const Pass& pass, const Tile& tile, std::uint32_t sub) {
  const std::uint32_t end = 16 * sub + 16 < tile.count ? 16 * sub + 16 : tile.count;
  for (std::uint32_t t = 16 * sub; t < end; ++t) fetch_row(pass, tile.keys[t]);
}
void fetch_values(const Pass& pass, const Tile& tile, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t t = begin; t < end && t < tile.count; ++t) fetch_row(pass, tile.values[t]);
}

float read_scale_after_row(const std::byte* row, std::uint32_t dim) {
  float scale = 0.0F;
  __builtin_memcpy(&scale, row + dim, sizeof scale);
  return scale;
}

void load_scales(const Pass& pass, Tile& tile) {
  for (std::uint32_t t = 0; t < tile.count || t % 16 != 0; ++t) {
    tile.key_scales[t] = read_scale_after_row(tile.keys[t], pass.layer->head_dim);
    tile.value_scales[t] = read_scale_after_row(tile.values[t], pass.layer->head_dim);
  }
}

// Rounds to the nearest bf16, ties to even; NaN stays NaN, and denormal numbers become zero. base/half.h is not used here, because the
// linker could choose a copy of its inline functions that was compiled for another processor.
std::uint16_t rounded_to_bf16(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude < 0x800000U) bits &= 0x80000000U;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

// Rounds the queries of an item with in_pairs to bf16 and writes them to the scratch. This takes little time compared with the products.
void round_queries(const Pass& pass) {
  const std::uint32_t dim = pass.layer->head_dim;
  for (std::uint32_t i = 0; i < pass.num_queries; ++i) {
    const float* const q = pass.q(i);
    float* const rounded = pass.scratch.queries + std::size_t{i} * dim;
    for (std::uint32_t d = 0; d < dim; ++d) {
      const std::uint16_t bits = rounded_to_bf16(q[d]);
      const std::uint32_t widened = std::uint32_t{bits} << 16U;
      if (Vec::kMultipliesPairs)
        __builtin_memcpy(reinterpret_cast<std::uint16_t*>(rounded) + d, &bits, sizeof bits);
      else
        __builtin_memcpy(rounded + d, &widened, sizeof widened);
    }
  }
}

// Defined only if Vec::kMultipliesPairs is set (x86/attention_bf16.cpp), like similar functions in the other headers.
template <int>
void load_value_pairs(const Pass& pass, const Tile& tile);

void load_keys(const Pass& pass, const Tile& tile, const Tile& next) {
  const std::uint32_t dim = pass.layer->head_dim;
  const std::uint32_t per_word = 4 / element_bytes(pass.layer->dtype);
  const std::uint32_t num_words = dim / per_word;
  const std::uint32_t stored_per_word = Vec::kMultipliesPairs ? 1 : per_word;
  for (std::uint32_t sub = 0; sub * 16 < tile.count; ++sub) {
    fetch_keys(pass, next, sub);
    fetch_values(pass, next, 16 * sub, 16 * sub + 16);
    float* out = pass.scratch.keys + std::size_t{sub} * num_words * stored_per_word * 16;
    for (std::uint32_t first = 0; first < num_words; first += 16) {
      const std::uint32_t n = num_words - first < 16 ? num_words - first : 16;
      const Words words = Words::transpose(tile.keys + std::size_t{16} * sub, std::size_t{4} * first, n);
      for (std::uint32_t w = 0; w < n; ++w) {
        float* const at = out + std::size_t{first + w} * stored_per_word * 16;
        const int word = static_cast<int>(w);
        if (stored_per_word == 1) words.store(word, at);
        if (stored_per_word == 2) words.store_bf16(word, at, at + 16);
        for (int i = 0; i < 4 && stored_per_word == 4; ++i) words.code(word, i).store(at + std::size_t{16} * i);
      }
    }
  }
}

void load_values(const Pass& pass, const Tile& tile) {
  const std::uint32_t dim = pass.layer->head_dim;
  if constexpr (Vec::kMultipliesPairs) return load_value_pairs<0>(pass, tile);
  float* out = pass.scratch.values;
  for (std::uint32_t t = 0; t < tile.count; ++t, out += dim) {
    for (std::uint32_t d = 0; d < dim; d += 16) {
      const std::byte* const at = tile.values[t] + d * element_bytes(pass);
      const Vec v = pass.layer->dtype == KvDtype::f32    ? Vec::load(reinterpret_cast<const float*>(at))
                    : pass.layer->dtype == KvDtype::bf16 ? Vec::load_bf16(reinterpret_cast<const std::uint16_t*>(at))
                                                         : Vec::load_i8(reinterpret_cast<const std::uint8_t*>(at));
      v.store(out + d);
    }
  }
}

}  // namespace
}  // namespace quire
