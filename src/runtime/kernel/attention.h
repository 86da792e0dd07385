#pragma once
// Paged attention: causal, grouped-query. The kernels themselves are in the table of kernel.h.
//
// Numeric contract. A row sees positions 0 .. its own, with a window the last so many of them, in segments of 512 and tiles of 64 aligned
// to absolute positions; segments and tiles of which it sees nothing are passed over.
//   In a segment, tile by tile: score = (fma chain over even dims + fma chain over odd dims) * scale, with a soft cap cap * tanh(score /
//   cap) after that; m' = max(m, scores of the tile); p = exp(score - m') (0 for masked keys); l = fma(l, exp(m - m'), sum of the tile's
//   p); out likewise, tokens ascending. The first segment's (m, l, out) is the start; each further one joins it: m' = max(m, m_s); a =
//   exp(m - m'); b = exp(m_s - m'); l = fma(l, a, l_s * b); out likewise. A head with a sink s takes it in
//   when all segments have joined: m' = max(m, s); a = exp(m - m'); l = fma(l, a, exp(s - m')); out = out * a. out / l at the end. Of int8
//   the codes are what is multiplied: score = (chains) * the key's float * scale, and a value's weight is p * its float, where l sums p. In
//   pairs (AttentionItem::in_pairs) queries and the weights p are rounded to the nearest bf16 (even of two) before they are multiplied, l
//   sums p as it was, and products are added as those of bf16 weights and bf16 activations are (matmul.h): dims in pairs, in one chain in
//   place of two, and tokens in pairs, an even position and the next one, those that the row does not see left out; numbers smaller than
//   the smallest normal one count as zero in all of it. A score that is NaN or infinite makes the whole output of its row and head NaN, a
//   value that is so its own dim (perhaps also that of other rows of the item). Of NaN, sign and payload are not part of the contract.
// So a row's result depends on its own position and the cache alone, not on the chunk, the batch, the block size, or who computed its
// segments.
#include <cstddef>
#include <cstdint>

#include "quire/base/ids.h"
#include "quire/base/options.h"

namespace quire {

// K and V of one layer. With int8 a row is its codes and behind them, at d = head_dim, the float of its row. Element (block, head, token,
// d) is at block * block_stride + head * head_stride + token * token_stride + d. keys and values are aligned to their element, and may be
// the same. A view: the memory room owns the bytes.
struct PagedKvLayer {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  KvDtype dtype = KvDtype::bf16;
  std::uint32_t block_size = 0;  // tokens
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;    // a multiple of 16, at most kMaxHeadDim
  std::size_t block_stride = 0;  // elements
  std::size_t head_stride = 0;
  std::size_t token_stride = 0;
};

inline constexpr std::uint32_t kMaxHeadDim = 576;  // latents of 512 and the 64 that turn

// A row of a request of its own among rows that share the beginning of their context.
struct SharingRow {
  const float* q = nullptr;  // head 0
  float* out = nullptr;      // head 0
  std::uint32_t position = 0;
  const BlockId* blocks = nullptr;
};

// Query rows of one request against one KV head: row r is at absolute position first_position + r and sees keys 0 .. first_position + r,
// all of them written to the cache before, or fewer with a window. q and out point at row 0, head 0: [row][num_heads][head_dim] with a
// stride per row.
struct AttentionItem {
  const float* q = nullptr;
  float* out = nullptr;
  std::size_t q_stride = 0;    // floats from row to row
  std::size_t out_stride = 0;  // floats from row to row
  std::uint32_t rows = 0;
  std::uint32_t first_position = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t group = 1;          // query heads per KV head: heads kv_head * group .. + group - 1 are computed
  const BlockId* blocks = nullptr;  // block table: position p lies in blocks[p / block_size]
  float scale = 1.0F;
  std::uint32_t window = 0;  // tokens, the row's own among them; 0: none
  float soft_cap = 0.0F;     // of the scores; 0: none
  // [num_heads]: finite scores that take a share of the weights and have no value; null: no head has one.
  const float* sinks = nullptr;

  // One row in pieces, so that threads share a long context: with `partials` set, rows is 1 and attend() computes segments first_segment
  // .. end_segment - 1 only; segment s goes to partials + s * attention_partial_floats(), and out stays as it is. When all segments that
  // the row sees are there, join_segments() makes out.
  float* partials = nullptr;
  std::uint32_t first_segment = 0;
  std::uint32_t end_segment = 0;

  // Rows of several requests that begin with the same blocks (cascade attention): row r is sharing[r], in place of q, out, their strides
  // and first_position. The first shared_tokens lie where `blocks` says, and are read and widened once for all of them; a multiple of
  // kTileTokens, and at most the position of each row. No window, no partials.
  const SharingRow* sharing = nullptr;
  std::uint32_t shared_tokens = 0;

  // What the same thread computes after this one, of the same layer, if it is known: its first keys and values are fetched meanwhile.
  const AttentionItem* next = nullptr;

  // Of a cache in bf16: products in pairs of bf16 (above), twice as fast where a processor has an instruction for them.
  bool in_pairs = false;
};

inline constexpr std::uint32_t kSegmentTokens = 512;
inline constexpr std::uint32_t kTileTokens = 64;

// The first position that a row at `position` sees. static: each instruction set compiles its own copy.
static constexpr std::uint32_t window_begin(std::uint32_t window, std::uint32_t position) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

// (out, m, l) of one segment for `group` query heads.
constexpr std::size_t attention_partial_floats(std::uint32_t head_dim, std::uint32_t group) {
  return std::size_t{group} * head_dim + 2 * std::size_t{(group + 15) / 16 * 16};
}

// Rows worth handing out as one item: more reuse each K/V tile better, fewer balance better.
inline constexpr std::uint32_t kAttentionItemRows = 32;

// Scratch of one thread, aligned to a cache line; enough for items of any number of rows.
std::size_t attention_scratch_bytes(std::uint32_t head_dim, std::uint32_t group);

}  // namespace quire
