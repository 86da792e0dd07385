#pragma once
// Describes how keys and values lie in memory. KV tensors, block tables and block copies follow this layout. The engine makes the layout
// from the cache groups that the core plans for the model's layers, and from the available memory (plan_kv_layout).
//
// The layers of a group share one block table. A tensor is a sequence of pages, one per block. The i-th layers of all groups share tensor
// i, because a block is in the tables of only one group at a time. Only the layer that wrote a page knows its format. Code that copies,
// zeroes or stores pages handles them as bytes.
#include <cstdint>
#include <variant>
#include <vector>

#include "quire/base/kv_spec.h"
#include "quire/base/options.h"

namespace quire {

// The position of one layer's keys and values, or of its state. Heads are KV heads: with grouped-query attention there are fewer KV heads
// than query heads.
struct KvLayerLayout {
  std::uint32_t group = 0;
  std::uint32_t tensor = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  // Strides in elements. Key element (block, head, token, d) is at block * block_stride + head * head_stride + token * token_stride + d of
  // the tensor; the value element is values_offset after it. `block` is a kernel block, and `token` counts within that block. With int8,
  // the float scale of a row follows the row's codes.
  std::uint64_t block_stride = 0;
  std::uint64_t head_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t values_offset = 0;
  // Size in bytes of the state at the start of a block's page. 0: the layer keeps keys and values.
  std::uint64_t state_bytes = 0;
};

// A cache group: layers that keep the same tokens and share a block table.
struct KvGroupLayout {
  LayerKvSpec spec;                     // kind of cache: full attention, a window, ...
  std::uint32_t block_size = 0;         // tokens per block in the core
  std::uint32_t kernel_block_size = 0;  // tokens per kernel block; a block consists of consecutive kernel blocks
  std::vector<std::uint32_t> layers;    // layers of the model; the i-th has its pages in tensor i

  // Returns the number of kernel blocks in a block.
  [[nodiscard]] std::uint32_t kernel_blocks_per_block() const { return block_size / kernel_block_size; }
  // Returns the size of the sliding window in tokens, including the current token. 0: no window.
  [[nodiscard]] std::uint32_t sliding_window() const {
    const auto* window = std::get_if<SlidingWindowSpec>(&spec);
    return window == nullptr ? 0 : window->sliding_window;
  }
  // Returns true if a page holds a state instead of keys and values. It is the state after the last token of the block, or of the request.
  [[nodiscard]] bool keeps_states() const { return std::holds_alternative<MambaSpec>(spec); }
  // Returns the number of additional blocks at the end of a request's table, for the states after draft tokens.
  [[nodiscard]] std::uint32_t num_spare_blocks() const {
    const auto* state = std::get_if<MambaSpec>(&spec);
    return state == nullptr ? 0 : state->num_speculative_blocks;
  }
  // Returns true if keys and values are computed from the encoder's output, not from the request's tokens.
  [[nodiscard]] bool keeps_encoder_output() const { return std::holds_alternative<CrossAttentionSpec>(spec); }
};

// Layout of the whole KV cache. It is made before the tensors and never changes. An object with a pointer to the layout (such as KvPages)
// must not outlive the engine that owns it.
struct KvLayout {
  std::uint32_t num_blocks = 0;  // number of blocks, including the null block
  KvDtype dtype = KvDtype::bf16;
  std::vector<KvGroupLayout> groups;
  // Positions by layer of the model. They are followed by the states of layers that have both attention and a state, or by the caches of
  // cross-attention, also by layer.
  std::vector<KvLayerLayout> layers;
  std::vector<std::uint64_t> page_bytes;  // bytes of one block, by tensor

  // Returns the size of one element in bytes.
  [[nodiscard]] std::uint32_t element_bytes() const { return quire::element_bytes(dtype); }
  // Returns the size of one block in bytes: its pages in all tensors, including tensors that its group does not use.
  [[nodiscard]] std::uint64_t bytes_per_block() const {
    std::uint64_t bytes = 0;
    for (const std::uint64_t page : page_bytes) bytes += page;
    return bytes;
  }
  // Returns the size of all blocks in bytes.
  [[nodiscard]] std::uint64_t total_bytes() const { return bytes_per_block() * num_blocks; }
  // Returns the number of bytes that the layers of a group use in one block.
  [[nodiscard]] std::uint64_t group_block_bytes(std::size_t group) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < groups[group].layers.size(); ++i) bytes += page_bytes[i];
    return bytes;
  }
};

}  // namespace quire
