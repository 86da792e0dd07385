#pragma once
// How keys and values lie in memory. KV tensors, block tables and block copies follow this layout. The engine makes it from the cache
// groups that the core plans for the model's layers and the available memory (plan_kv_layout).
//
// Layers of a group share one block table. A tensor is a row of pages, one per block. The i-th layers of all groups share tensor i: a block
// is in the tables of only one group at a time. Only the layer that wrote a page knows its format: code that copies, zeroes or stores pages
// handles them as bytes.
#include <cstdint>
#include <variant>
#include <vector>

#include "quire/base/kv_spec.h"
#include "quire/base/options.h"

namespace quire {

// The position of one layer's keys and values, or of its state. Heads are KV heads: with grouped-query attention there are fewer of them
// than query heads.
struct KvLayerLayout {
  std::uint32_t group = 0;
  std::uint32_t tensor = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  // In elements. With int8, the float scale of a row follows its codes. Element (block, head, token, d) of the keys is at block *
  // block_stride + head * head_stride + token * token_stride + d of the tensor. That of the values is values_offset further on. `block` is
  // a kernel block, and `token` counts within it.
  std::uint64_t block_stride = 0;
  std::uint64_t head_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t values_offset = 0;
  // Bytes of the state at the start of a block's page. 0: the layer keeps keys and values.
  std::uint64_t state_bytes = 0;
};

// Layers that keep the same tokens, and so share a block table.
struct KvGroupLayout {
  LayerKvSpec spec;                     // kind of cache: full attention, a window, ...
  std::uint32_t block_size = 0;         // tokens per block, as the core counts them
  std::uint32_t kernel_block_size = 0;  // tokens per block, as kernels see it; a block is a whole number of consecutive kernel blocks
  std::vector<std::uint32_t> layers;    // layers of the model; the i-th has its pages in tensor i

  // Returns the number of kernel blocks in a block.
  [[nodiscard]] std::uint32_t kernel_blocks_per_block() const { return block_size / kernel_block_size; }
  // Returns the window in tokens, the current token included. 0: no window.
  [[nodiscard]] std::uint32_t sliding_window() const {
    const auto* window = std::get_if<SlidingWindowSpec>(&spec);
    return window == nullptr ? 0 : window->sliding_window;
  }
  // Returns true if a page holds a state instead of keys and values: the state after the last token of the block, or of the request.
  [[nodiscard]] bool keeps_states() const { return std::holds_alternative<MambaSpec>(spec); }
  // Returns the number of additional blocks at the end of a request's table, for the states after draft tokens.
  [[nodiscard]] std::uint32_t num_spare_blocks() const {
    const auto* state = std::get_if<MambaSpec>(&spec);
    return state == nullptr ? 0 : state->num_speculative_blocks;
  }
  // Returns true if keys and values are computed from the encoder's output, not from the request's tokens.
  [[nodiscard]] bool keeps_encoder_output() const { return std::holds_alternative<CrossAttentionSpec>(spec); }
};

// Layout of the whole KV cache. It is made before the tensors are, and never changes. Holders of a pointer to it (KvPages) must not outlive
// the engine that owns it.
struct KvLayout {
  std::uint32_t num_blocks = 0;  // null block included
  KvDtype dtype = KvDtype::bf16;
  std::vector<KvGroupLayout> groups;
  // By layer of the model. After them, by layer, the states of layers that have attention and a state, or the caches of cross-attention.
  std::vector<KvLayerLayout> layers;
  std::vector<std::uint64_t> page_bytes;  // bytes of one block, by tensor

  // Returns the bytes of one element.
  [[nodiscard]] std::uint32_t element_bytes() const { return quire::element_bytes(dtype); }
  // Returns the bytes of one block: its pages in all tensors, including the tensors that its group does not use.
  [[nodiscard]] std::uint64_t bytes_per_block() const {
    std::uint64_t bytes = 0;
    for (const std::uint64_t page : page_bytes) bytes += page;
    return bytes;
  }
  // Returns the bytes of all blocks.
  [[nodiscard]] std::uint64_t total_bytes() const { return bytes_per_block() * num_blocks; }
  // Returns the bytes that the layers of a group keep in one block.
  [[nodiscard]] std::uint64_t group_block_bytes(std::size_t group) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < groups[group].layers.size(); ++i) bytes += page_bytes[i];
    return bytes;
  }
};

}  // namespace quire
