#pragma once
// Helpers with requests and specs for tests of the KV-cache manager. Blocks are hashed by a simple chain instead of a real hash: equal
// values mean equal prefixes.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/kv/kv_cache_manager.h"

namespace quire::test {

inline std::uint64_t fnv(std::string_view bytes) {
  std::uint64_t value = 0xCBF29CE484222325ULL;
  for (const char byte : bytes) value = (value ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3ULL;
  return value;
}

inline std::uint64_t chain(std::uint64_t parent, std::span<const TokenId> tokens) {
  std::string bytes(reinterpret_cast<const char*>(&parent), sizeof parent);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return fnv(bytes);
}

inline BlockHash widened(std::uint64_t value) {
  BlockHash hash;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t part = value + i;
    std::memcpy(hash.bytes.data() + 8 * i, &part, sizeof part);
  }
  return hash;
}

inline std::vector<TokenId> text(std::string_view letters) {
  return {letters.begin(), letters.end()};
}

inline std::vector<std::uint32_t> values(std::span<const BlockId> blocks) {
  std::vector<std::uint32_t> result;
  for (const BlockId block : blocks) result.push_back(block.value);
  return result;
}

// A request with everything that the manager may read.
struct TestRequest {
  explicit TestRequest(std::uint32_t hash_size = 4) : hash_block_size(hash_size) {}
  TestRequest(std::string_view letters, std::uint32_t hash_size) : TestRequest(hash_size) { append(text(letters)); }
  TestRequest(const TestRequest&) = delete;
  TestRequest& operator=(const TestRequest&) = delete;

  std::uint32_t hash_block_size;
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> names;
  std::vector<BlockHash> hashes;
  std::vector<MultimodalFeature> features;
  std::string lora, salt;
  RequestContent content;
  KvBlocks blocks;
  std::uint32_t num_computed = 0;
  bool skip = false;
  bool preempted = false;

  void append(std::span<const TokenId> more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    while ((names.size() + 1) * hash_block_size <= tokens.size()) {
      names.push_back(chain(names.empty() ? 0 : names.back(), std::span(tokens).subspan(names.size() * hash_block_size, hash_block_size)));
      hashes.push_back(widened(names.back()));
    }
  }
  void append(std::string_view letters) { append(text(letters)); }

  KvRequest view() {
    content = {.tokens = tokens, .lora_name = lora, .multimodal = features, .cache_salt = salt, .prompt_embeds = {}};
    return {.blocks = blocks,
            .hashes = hashes,
            .num_tokens = static_cast<std::uint32_t>(tokens.size()),
            .num_computed_tokens = num_computed,
            .skip_reading_prefix_cache = skip,
            .was_preempted = preempted,
            .content = &content,
            .lora_id = 7};
  }
};

template <class Spec>
Spec shaped(std::uint32_t block_size) {
  Spec spec;
  spec.block_size = block_size;
  return spec;
}

inline LayerKvSpec full(std::uint32_t block_size = 4) {
  return shaped<FullAttentionSpec>(block_size);
}
inline LayerKvSpec mla(std::uint32_t block_size = 4) {
  return shaped<MlaAttentionSpec>(block_size);
}
inline LayerKvSpec sink(std::uint32_t sink_len, std::uint32_t block_size = 4) {
  auto spec = shaped<SinkFullAttentionSpec>(block_size);
  spec.sink_len = sink_len;
  return spec;
}
inline LayerKvSpec window(std::uint32_t tokens, std::uint32_t block_size = 4) {
  auto spec = shaped<SlidingWindowSpec>(block_size);
  spec.sliding_window = tokens;
  return spec;
}
inline LayerKvSpec chunked(std::uint32_t tokens, std::uint32_t block_size = 4) {
  auto spec = shaped<ChunkedLocalSpec>(block_size);
  spec.attention_chunk_size = tokens;
  return spec;
}
inline LayerKvSpec mamba(MambaCacheMode mode, std::uint32_t num_speculative_blocks = 0, std::uint32_t block_size = 4) {
  auto spec = shaped<MambaSpec>(block_size);
  spec.mode = mode;
  spec.num_speculative_blocks = num_speculative_blocks;
  return spec;
}
inline LayerKvSpec cross(std::uint32_t block_size = 4) {
  return shaped<CrossAttentionSpec>(block_size);
}

inline KvCacheConfig config_of(std::uint32_t num_blocks, std::vector<LayerKvSpec> specs) {
  KvCacheConfig config;
  config.num_blocks = num_blocks;
  for (LayerKvSpec& spec : specs) config.groups.push_back({.layer_names = {}, .spec = std::move(spec), .layer_specs = {}});
  return config;
}

inline KvCacheOptions options_of(std::uint32_t hash_block_size = 4) {
  KvCacheOptions options;
  options.max_model_len = 64;
  options.hash_block_size = hash_block_size;
  options.log_stats = true;
  return options;
}

}  // namespace quire::test
