#pragma once
// How the layers of a model keep keys, values and states, as values: one spec per layer, and the cache groups that layers are gathered in.
// Layers of a group share one block table. The kinds and their fields are those of vLLM V1's kv_cache_interface (v0.19.0); specs are equal
// when kind and all fields are, and groups with equal specs are looked up together.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace quire {

// An element type by name ("bfloat16") with its size.
struct CacheDtype {
  std::string name;
  std::uint32_t bytes = 2;

  friend bool operator==(const CacheDtype&, const CacheDtype&) = default;
};

// What all attention layers have.
struct AttentionShape {
  std::uint32_t block_size = 16;  // tokens
  std::uint32_t num_kv_heads = 1;
  std::uint32_t head_size = 1;
  CacheDtype dtype;
  std::optional<std::uint64_t> page_size_padded;  // bytes of a block, where padding makes pages equal

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

struct FullAttentionSpec : AttentionShape {
  std::uint32_t head_size_v = 0;  // 0: head_size
  // Set where layers with a window or chunks are kept as if they attended to everything.
  std::optional<std::uint32_t> sliding_window;
  std::optional<std::uint32_t> attention_chunk_size;

  friend bool operator==(const FullAttentionSpec&, const FullAttentionSpec&) = default;
};

struct MlaAttentionSpec : FullAttentionSpec {
  std::optional<std::string> cache_dtype;  // "fp8_ds_mla" has a page size of its own

  friend bool operator==(const MlaAttentionSpec&, const MlaAttentionSpec&) = default;
};

// The first tokens of every sequence are attended to for ever; blocks for them are set aside at start.
struct SinkFullAttentionSpec : FullAttentionSpec {
  std::uint32_t sink_len = 0;  // tokens, a positive multiple of block_size

  friend bool operator==(const SinkFullAttentionSpec&, const SinkFullAttentionSpec&) = default;
};

struct SlidingWindowSpec : AttentionShape {
  std::uint32_t sliding_window = 0;  // tokens, the current one among them

  friend bool operator==(const SlidingWindowSpec&, const SlidingWindowSpec&) = default;
};

// Attention within chunks of fixed borders: a token sees those of its own chunk, back to a multiple of attention_chunk_size.
struct ChunkedLocalSpec : AttentionShape {
  std::uint32_t attention_chunk_size = 0;  // tokens

  friend bool operator==(const ChunkedLocalSpec&, const ChunkedLocalSpec&) = default;
};

// none: one state per sequence (block_size is then max_model_len). all: a state per block. align: states at block ends, kept while needed.
enum class MambaCacheMode : std::uint8_t { none, all, align };

// States instead of keys and values. A state is a whole: a prefix of it cannot be read, so a hit needs a state that was kept at that place.
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

// Of a decoder that attends to an encoder's output: blocks are as many as that is long, taken once, and never shared.
struct CrossAttentionSpec : AttentionShape {
  friend bool operator==(const CrossAttentionSpec&, const CrossAttentionSpec&) = default;
};

// Needs no cache.
struct EncoderOnlySpec : AttentionShape {
  friend bool operator==(const EncoderOnlySpec&, const EncoderOnlySpec&) = default;
};

using LayerKvSpec = std::variant<FullAttentionSpec, MlaAttentionSpec, SinkFullAttentionSpec, SlidingWindowSpec, ChunkedLocalSpec, MambaSpec,
                                 CrossAttentionSpec, EncoderOnlySpec>;

inline std::uint32_t block_size_of(const LayerKvSpec& spec) {
  return std::visit([](const auto& kind) { return kind.block_size; }, spec);
}

// Full attention of any kind: a prefix of a hit is a hit.
inline bool is_full_attention(const LayerKvSpec& spec) {
  return std::holds_alternative<FullAttentionSpec>(spec) || std::holds_alternative<MlaAttentionSpec>(spec) ||
         std::holds_alternative<SinkFullAttentionSpec>(spec);
}

struct KvCacheGroup {
  std::vector<std::string> layer_names;
  LayerKvSpec spec;  // what decisions depend on; the first layer's where `layer_specs` differ
  // One per layer where the layers of the group need equal slots but pages of unequal size (vLLM's UniformTypeKVCacheSpecs); else empty.
  std::vector<LayerKvSpec> layer_specs;

  friend bool operator==(const KvCacheGroup&, const KvCacheGroup&) = default;
};

// One allocation, and the layers that keep their pages in it.
struct KvCacheTensor {
  std::uint64_t size = 0;  // bytes
  std::vector<std::string> shared_by;

  friend bool operator==(const KvCacheTensor&, const KvCacheTensor&) = default;
};

// What vLLM's get_kv_cache_configs gives for one worker: how many blocks there are, and who shares block tables and memory.
struct KvCacheConfig {
  std::uint32_t num_blocks = 0;  // with the null block
  std::vector<KvCacheGroup> groups;
  std::vector<KvCacheTensor> tensors;

  [[nodiscard]] bool has_mamba_layers() const {
    for (const KvCacheGroup& group : groups)
      if (std::holds_alternative<MambaSpec>(group.spec)) return true;
    return false;
  }

  friend bool operator==(const KvCacheConfig&, const KvCacheConfig&) = default;
};

}  // namespace quire
