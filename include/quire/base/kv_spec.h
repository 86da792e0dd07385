#pragma once
// Describes how the layers of a model keep keys, values and states: one spec per layer, and cache groups of layers. Layers of a group share
// one block table. The kinds and their fields are as in vLLM V1's kv_cache_interface (v0.19.0). Specs are equal if their kind and all
// fields are equal. Groups with equal specs are looked up together. Values.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace quire {

// An element type: its name, such as "bfloat16", and its size.
struct CacheDtype {
  std::string name;
  std::uint32_t bytes = 2;

  friend bool operator==(const CacheDtype&, const CacheDtype&) = default;
};

// Fields that all attention specs have.
struct AttentionShape {
  std::uint32_t block_size = 16;  // tokens
  std::uint32_t num_kv_heads = 1;
  std::uint32_t head_size = 1;
  CacheDtype dtype;
  std::optional<std::uint64_t> page_size_padded;  // bytes of a page with padding, if pages are padded to equal sizes

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

// Full attention: each token attends to all earlier tokens.
struct FullAttentionSpec : AttentionShape {
  std::uint32_t head_size_v = 0;  // 0: head_size
  // Set if layers with a sliding window or with chunked local attention are cached as full attention.
  std::optional<std::uint32_t> sliding_window;
  std::optional<std::uint32_t> attention_chunk_size;

  friend bool operator==(const FullAttentionSpec&, const FullAttentionSpec&) = default;
};

// Multi-head latent attention: one vector per token for all heads.
struct MlaAttentionSpec : FullAttentionSpec {
  std::optional<std::string> cache_dtype;  // "fp8_ds_mla" has a special page size

  friend bool operator==(const MlaAttentionSpec&, const MlaAttentionSpec&) = default;
};

// Full attention with sinks: each token attends to all earlier tokens, and to `sink_len` sink tokens. The blocks of the sink tokens are
// reserved at the start.
struct SinkFullAttentionSpec : FullAttentionSpec {
  std::uint32_t sink_len = 0;  // tokens, a positive multiple of block_size

  friend bool operator==(const SinkFullAttentionSpec&, const SinkFullAttentionSpec&) = default;
};

// Sliding-window attention: each token attends to the latest tokens.
struct SlidingWindowSpec : AttentionShape {
  std::uint32_t sliding_window = 0;  // number of tokens, including the current token

  friend bool operator==(const SlidingWindowSpec&, const SlidingWindowSpec&) = default;
};

// Chunked local attention: a token attends to the earlier tokens of its chunk. Chunks begin at multiples of attention_chunk_size.
struct ChunkedLocalSpec : AttentionShape {
  std::uint32_t attention_chunk_size = 0;  // tokens

  friend bool operator==(const ChunkedLocalSpec&, const ChunkedLocalSpec&) = default;
};

// How states are cached, as vLLM's mamba_cache_mode.
// none: one state per sequence (block_size is then max_model_len).
// all: one state per block.
// align: states at the ends of blocks, kept only while they are needed.
enum class MambaCacheMode : std::uint8_t { none, all, align };

// A layer with a state instead of keys and values, such as Mamba. A state has no usable prefix, so a hit after a token needs a state that
// was kept after exactly that token.
struct MambaSpec {
  std::uint32_t block_size = 16;  // tokens
  std::vector<std::vector<std::uint64_t>> shapes;
  std::vector<CacheDtype> dtypes;  // one per shape
  std::optional<std::uint64_t> page_size_padded;
  std::string mamba_type = "mamba2";
  MambaCacheMode mode = MambaCacheMode::none;
  std::uint32_t num_speculative_blocks = 0;

  friend bool operator==(const MambaSpec&, const MambaSpec&) = default;
};

// Cross-attention layers of a decoder, which attend to an encoder's output. A request allocates blocks for the whole output once, and never
// shares them.
struct CrossAttentionSpec : AttentionShape {
  friend bool operator==(const CrossAttentionSpec&, const CrossAttentionSpec&) = default;
};

// An attention layer of an encoder, which needs no cache.
struct EncoderOnlySpec : AttentionShape {
  friend bool operator==(const EncoderOnlySpec&, const EncoderOnlySpec&) = default;
};

using LayerKvSpec = std::variant<FullAttentionSpec, MlaAttentionSpec, SinkFullAttentionSpec, SlidingWindowSpec, ChunkedLocalSpec, MambaSpec,
                                 CrossAttentionSpec, EncoderOnlySpec>;

// Returns the number of tokens per block of a spec of any kind.
inline std::uint32_t block_size_of(const LayerKvSpec& spec) {
  return std::visit([](const auto& kind) { return kind.block_size; }, spec);
}

// Returns true for full attention of any kind. With these kinds, each prefix of a hit is also a hit.
inline bool is_full_attention(const LayerKvSpec& spec) {
  return std::holds_alternative<FullAttentionSpec>(spec) || std::holds_alternative<MlaAttentionSpec>(spec) ||
         std::holds_alternative<SinkFullAttentionSpec>(spec);
}

// A cache group: layers that share one block table.
struct KvCacheGroup {
  std::vector<std::string> layer_names;
  LayerKvSpec spec;  // spec on which decisions are based; the first layer's spec if `layer_specs` differ
  // One spec per layer, if the layers need equal numbers of slots but pages of different sizes (vLLM's UniformTypeKVCacheSpecs); else
  // empty.
  std::vector<LayerKvSpec> layer_specs;

  friend bool operator==(const KvCacheGroup&, const KvCacheGroup&) = default;
};

// One allocated tensor, and the names of the layers that keep their pages in it.
struct KvCacheTensor {
  std::uint64_t size = 0;  // bytes
  std::vector<std::string> shared_by;

  friend bool operator==(const KvCacheTensor&, const KvCacheTensor&) = default;
};

// The KV cache configuration of one worker, as vLLM's get_kv_cache_configs returns it: the number of blocks, and the layers that share
// block tables and memory.
struct KvCacheConfig {
  std::uint32_t num_blocks = 0;  // number of blocks, including the null block
  std::vector<KvCacheGroup> groups;
  std::vector<KvCacheTensor> tensors;

  // Returns true if a group contains layers with states (MambaSpec).
  [[nodiscard]] bool has_mamba_layers() const {
    for (const KvCacheGroup& group : groups)
      if (std::holds_alternative<MambaSpec>(group.spec)) return true;
    return false;
  }

  friend bool operator==(const KvCacheConfig&, const KvCacheConfig&) = default;
};

}  // namespace quire
