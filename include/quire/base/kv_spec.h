#pragma once
// How the layers of a model keep keys, values and states: one spec per layer, and the cache groups of layers. Layers of a group share one
// block table. The kinds and their fields are as in vLLM V1's kv_cache_interface (v0.19.0). Specs are equal when their kind and all fields
// are equal, and groups with equal specs are looked up together. Values.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace quire {

// An element type: its name ("bfloat16") and its size.
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
  std::optional<std::uint64_t> page_size_padded;  // bytes of a padded block, where padding makes pages equal

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

// Each token attends to all earlier tokens.
struct FullAttentionSpec : AttentionShape {
  std::uint32_t head_size_v = 0;  // 0: head_size
  // Set if layers with a window or chunks are cached as full attention.
  std::optional<std::uint32_t> sliding_window;
  std::optional<std::uint32_t> attention_chunk_size;

  friend bool operator==(const FullAttentionSpec&, const FullAttentionSpec&) = default;
};

// Multi-head latent attention: one vector per token for all heads.
struct MlaAttentionSpec : FullAttentionSpec {
  std::optional<std::string> cache_dtype;  // "fp8_ds_mla" has a special page size

  friend bool operator==(const MlaAttentionSpec&, const MlaAttentionSpec&) = default;
};

// Each token attends to all earlier tokens, and to `sink_len` sink tokens. Blocks for the sink are reserved at start.
struct SinkFullAttentionSpec : FullAttentionSpec {
  std::uint32_t sink_len = 0;  // tokens, a positive multiple of block_size

  friend bool operator==(const SinkFullAttentionSpec&, const SinkFullAttentionSpec&) = default;
};

// Each token attends to a window of the latest tokens.
struct SlidingWindowSpec : AttentionShape {
  std::uint32_t sliding_window = 0;  // tokens, the current one included

  friend bool operator==(const SlidingWindowSpec&, const SlidingWindowSpec&) = default;
};

// Attention within fixed chunks: a token attends to earlier tokens of its chunk, which begins at a multiple of attention_chunk_size.
struct ChunkedLocalSpec : AttentionShape {
  std::uint32_t attention_chunk_size = 0;  // tokens

  friend bool operator==(const ChunkedLocalSpec&, const ChunkedLocalSpec&) = default;
};

// none: one state per sequence (block_size is then max_model_len). all: one state per block. align: states at block ends, kept while
// needed.
enum class MambaCacheMode : std::uint8_t { none, all, align };

// A layer with states instead of keys and values. A state cannot be read in part, so a hit needs a state that was kept after exactly that
// token.
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

// Decoder layers that attend to an encoder's output. A request takes blocks for the whole output once, and never shares them.
struct CrossAttentionSpec : AttentionShape {
  friend bool operator==(const CrossAttentionSpec&, const CrossAttentionSpec&) = default;
};

// An attention layer of an encoder, which needs no cache.
struct EncoderOnlySpec : AttentionShape {
  friend bool operator==(const EncoderOnlySpec&, const EncoderOnlySpec&) = default;
};

using LayerKvSpec = std::variant<FullAttentionSpec, MlaAttentionSpec, SinkFullAttentionSpec, SlidingWindowSpec, ChunkedLocalSpec, MambaSpec,
                                 CrossAttentionSpec, EncoderOnlySpec>;

// Returns the tokens per block of any kind.
inline std::uint32_t block_size_of(const LayerKvSpec& spec) {
  return std::visit([](const auto& kind) { return kind.block_size; }, spec);
}

// Returns true for full attention of any kind. For these kinds, each prefix of a hit is a hit.
inline bool is_full_attention(const LayerKvSpec& spec) {
  return std::holds_alternative<FullAttentionSpec>(spec) || std::holds_alternative<MlaAttentionSpec>(spec) ||
         std::holds_alternative<SinkFullAttentionSpec>(spec);
}

// Layers that share one block table.
struct KvCacheGroup {
  std::vector<std::string> layer_names;
  LayerKvSpec spec;  // spec that decisions use; the first layer's where `layer_specs` differ
  // One spec per layer, if the layers need equally many slots but pages of unequal size (vLLM's UniformTypeKVCacheSpecs); else empty.
  std::vector<LayerKvSpec> layer_specs;

  friend bool operator==(const KvCacheGroup&, const KvCacheGroup&) = default;
};

// One allocation, and the layers that keep their pages in it.
struct KvCacheTensor {
  std::uint64_t size = 0;  // bytes
  std::vector<std::string> shared_by;

  friend bool operator==(const KvCacheTensor&, const KvCacheTensor&) = default;
};

// The result of vLLM's get_kv_cache_configs for one worker: the number of blocks, and the layers that share block tables and memory.
struct KvCacheConfig {
  std::uint32_t num_blocks = 0;  // null block included
  std::vector<KvCacheGroup> groups;
  std::vector<KvCacheTensor> tensors;

  // Returns true if a group keeps states.
  [[nodiscard]] bool has_mamba_layers() const {
    for (const KvCacheGroup& group : groups)
      if (std::holds_alternative<MambaSpec>(group.spec)) return true;
    return false;
  }

  friend bool operator==(const KvCacheConfig&, const KvCacheConfig&) = default;
};

}  // namespace quire
