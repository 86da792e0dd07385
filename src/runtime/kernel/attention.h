#pragma once
// Paged attention: causal, grouped-query. The kernels themselves are in the table of kernel.h.
//
// Numeric contract. A row sees the positions from 0 to its own, or with a window the last `window` of these. Segments of 512 and tiles of
// 64 positions are aligned to absolute positions. Segments and tiles in which the row sees nothing are skipped.
//  - In a segment, tile by tile:
//      score = (fma chain over even dims + fma chain over odd dims) * scale; with a soft cap, score = cap * tanh(score / cap) after that;
//      m' = max(m, scores of the tile); p = exp(score - m'), 0 for masked keys; l = fma(l, exp(m - m'), sum of the tile's p);
//      out = out * exp(m - m'), then out = fma(p, value, out) for tokens ascending.
//  - The first segment's (m, l, out) is the start. Each further segment (m_s, l_s, out_s) joins it:
//      m' = max(m, m_s); a = exp(m - m'); b = exp(m_s - m'); l = fma(l, a, l_s * b); out = fma(out, a, out_s * b).
//  - After all segments have joined, a head with a sink s adds it:
//      m' = max(m, s); a = exp(m - m'); l = fma(l, a, exp(s - m')); out = out * a.
//  - The result is out / l.
//  - int8 multiplies the codes: score = (chains) * the key's float * scale. A value's weight is p * its float, while l sums p.
//  - In pairs (AttentionItem::in_pairs), queries and weights p are rounded to the nearest bf16 (ties to even) before they are multiplied; l
//    sums p unrounded. Products are added like products of bf16 weights and bf16 activations (matmul.h). Dims are added in pairs, in one
//    chain instead of two. Tokens are added in pairs of an even position and the next one, without tokens that the row does not see.
//    Denormal numbers count as zero throughout.
//  - A score that is NaN or infinite makes the whole output of its row and head NaN. A value that is NaN or infinite makes its own dim NaN
//    or infinite, perhaps also in other rows of the item. Sign and payload of NaN are not part of the contract.
//
// A row's result therefore depends only on its position and the cached keys and values, not on the chunk, the batch, the block size, or the
// threads that computed its segments.
#include <cstddef>
#include <cstdint>

#include "quire/base/ids.h"
#include "quire/base/options.h"

namespace quire {

// View of the keys and values of one layer; the KV cache owns the bytes. Element (block, head, token, d) is at block * block_stride + head
// * head_stride + token * token_stride + d. An int8 row has its codes and then, at d = head_dim, the float scale of the row. `keys` and
// `values` are aligned to their element, and may be equal.
struct PagedKvLayer {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  KvDtype dtype = KvDtype::bf16;
  std::uint32_t block_size = 0;  // in tokens
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;    // a multiple of 16, at most kMaxHeadDim
  std::size_t block_stride = 0;  // in elements
  std::size_t head_stride = 0;
  std::size_t token_stride = 0;
};

inline constexpr std::uint32_t kMaxHeadDim = 576;  // MLA: 512 latent and 64 rotary dims

// One request's row among rows of several requests that share a prefix (AttentionItem::sharing).
struct SharingRow {
  const float* q = nullptr;  // head 0
  float* out = nullptr;      // head 0
  std::uint32_t position = 0;
  const BlockId* blocks = nullptr;
};

// Query rows of one request against one KV head. Row r is at absolute position first_position + r and sees keys 0 .. first_position + r, or
// fewer with a window. These keys must be in the cache already. `q` and `out` point to row 0, head 0 of [row][num_heads][head_dim], with a
// stride per row.
struct AttentionItem {
  const float* q = nullptr;
  float* out = nullptr;
  std::size_t q_stride = 0;    // floats from row to row
  std::size_t out_stride = 0;  // floats from row to row
  std::uint32_t rows = 0;
  std::uint32_t first_position = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t group = 1;          // query heads per KV head: computes heads kv_head * group .. + group - 1
  const BlockId* blocks = nullptr;  // block table: position p is in blocks[p / block_size]
  float scale = 1.0F;
  std::uint32_t window = 0;  // in tokens, including the row's own; 0: none
  float soft_cap = 0.0F;     // cap of the scores; 0: none
  // [num_heads]: attention sinks, finite scores that count in the softmax but have no value; null: no sinks.
  const float* sinks = nullptr;

  // Splits one row among threads that share a long context. If `partials` is set, `rows` is 1, attend() computes only segments
  // first_segment .. end_segment - 1, and does not write `out`. Segment s goes to partials + s * attention_partial_floats(). When all
  // segments that the row sees are computed, join_segments() writes `out`.
  float* partials = nullptr;
  std::uint32_t first_segment = 0;
  std::uint32_t end_segment = 0;

  // Rows of several requests that begin with the same blocks (cascade attention). Row r is sharing[r]; q, out, their strides and
  // first_position are not used. The first shared_tokens positions are in `blocks`; they are read and widened once for all rows.
  // shared_tokens is a multiple of kTileTokens and at most the position of each row. Windows and partials are not allowed.
  const SharingRow* sharing = nullptr;
  std::uint32_t shared_tokens = 0;

  // The item of the same layer that this thread computes next, if known. attend() prefetches the first keys and values of that item.
  const AttentionItem* next = nullptr;

  // Multiplies pairs of bf16 (see the contract); requires a bf16 cache. Twice as fast on processors with an instruction for pairs of bf16.
  bool in_pairs = false;
};

inline constexpr std::uint32_t kSegmentTokens = 512;
inline constexpr std::uint32_t kTileTokens = 64;

// Returns the first position that a row at `position` sees. The function is static so that each instruction set compiles a separate copy.
static constexpr std::uint32_t window_begin(std::uint32_t window, std::uint32_t position) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}

// Returns the number of floats in (out, m, l) of one segment for `group` query heads.
constexpr std::size_t attention_partial_floats(std::uint32_t head_dim, std::uint32_t group) {
  return std::size_t{group} * head_dim + 2 * std::size_t{(group + 15) / 16 * 16};
}

// Number of rows per item: more rows reuse each K/V tile better, fewer rows balance the load better.
inline constexpr std::uint32_t kAttentionItemRows = 32;

// Returns the size in bytes of one thread's scratch memory, which is enough for items with any number of rows. The scratch must start on a
// cache line.
std::size_t attention_scratch_bytes(std::uint32_t head_dim, std::uint32_t group);

}  // namespace quire
