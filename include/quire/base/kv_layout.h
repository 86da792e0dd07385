#pragma once
// How keys and values lie in memory, said once: KV tensors, block tables and copies of blocks follow it. The engine makes it from the cache
// groups that the core plans for the model's layers and the memory there is (plan_kv_layout).
//
// Layers of a group share one block table. A tensor is a row of pages, one per block; the i-th layers of all groups share tensor i, which
// works because a block is in the tables of one group at a time. What a page holds is the business of the layer that wrote it: who copies,
// zeroes or stores pages takes their bytes as they are.
#include <cstdint>
#include <variant>
#include <vector>

#include "quire/base/kv_spec.h"
#include "quire/base/options.h"

namespace quire {

// Where one layer finds its keys and values, or its state. Heads here are KV heads: with grouped queries there are fewer of them than query
// heads.
struct KvLayerLayout {
  std::uint32_t group = 0;
  std::uint32_t tensor = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  // In elements; with int8 the float of a row of codes lies behind them. Element (block, head, token, d) of the keys is at block *
  // block_stride + head * head_stride + token * token_stride + d of the tensor, that of the values values_offset further on; block and
  // token are a kernel block and a token in it.
  std::uint64_t block_stride = 0;
  std::uint64_t head_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t values_offset = 0;
  // Of a layer with a state: what of a block's page it takes, from its begin. 0: the layer keeps keys and values.
  std::uint64_t state_bytes = 0;
};

// Layers that keep the same tokens, and so share a block table.
struct KvGroupLayout {
  LayerKvSpec spec;                     // what the layers keep: full attention, a window, ...
  std::uint32_t block_size = 0;         // tokens of a block as the core counts them
  std::uint32_t kernel_block_size = 0;  // tokens of a block as kernels see it; a block is a whole number of these, one after the other
  std::vector<std::uint32_t> layers;    // of the model; the i-th has its pages in tensor i

  [[nodiscard]] std::uint32_t kernel_blocks_per_block() const { return block_size / kernel_block_size; }
  // Tokens, the current one among them; 0: no window.
  [[nodiscard]] std::uint32_t sliding_window() const {
    const auto* window = std::get_if<SlidingWindowSpec>(&spec);
    return window == nullptr ? 0 : window->sliding_window;
  }
  // A page is a state, that after the last token of the block or of its request, instead of keys and values.
  [[nodiscard]] bool keeps_states() const { return std::holds_alternative<MambaSpec>(spec); }
  // At the end of a request's table, beside those of its tokens: for the states behind drafts.
  [[nodiscard]] std::uint32_t num_spare_blocks() const {
    const auto* state = std::get_if<MambaSpec>(&spec);
    return state == nullptr ? 0 : state->num_speculative_blocks;
  }
  // Keys and values are of what an encoder has made of the request's input, not of its tokens.
  [[nodiscard]] bool keeps_encoder_output() const { return std::holds_alternative<CrossAttentionSpec>(spec); }
};

// Made once, before the tensors are; never changed. Whoever keeps a pointer to it (KvPages) must not outlive the engine that owns it.
struct KvLayout {
  std::uint32_t num_blocks = 0;  // with the null block
  KvDtype dtype = KvDtype::bf16;
  std::vector<KvGroupLayout> groups;
  std::vector<KvLayerLayout>
      layers;  // by layer of the model; behind them, by layer, the states of those that have both, or what an encoder made
  std::vector<std::uint64_t> page_bytes;  // of one block, by tensor

  [[nodiscard]] std::uint32_t element_bytes() const { return quire::element_bytes(dtype); }
  // What a block costs: its pages in all tensors, also in those that its group does not use.
  [[nodiscard]] std::uint64_t bytes_per_block() const {
    std::uint64_t bytes = 0;
    for (const std::uint64_t page : page_bytes) bytes += page;
    return bytes;
  }
  [[nodiscard]] std::uint64_t total_bytes() const { return bytes_per_block() * num_blocks; }
  // What the layers of a group keep in a block of theirs.
  [[nodiscard]] std::uint64_t group_block_bytes(std::size_t group) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < groups[group].layers.size(); ++i) bytes += page_bytes[i];
    return bytes;
  }
};

}  // namespace quire
