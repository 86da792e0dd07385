#pragma once
// Interface for block hashes (CoreSeams::hash). A block hash stands for the keys and values of a full block. It must depend on the block's
// tokens, on all tokens before them (through the parent's hash), and on everything else that makes equal tokens differ. Blocks with equal
// hashes are treated as the same block, so hashes must not collide.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"

namespace quire {

// A block hash. Hashes of fewer than 32 bytes are padded with zeros.
struct BlockHash {
  std::array<std::uint8_t, 32> bytes{};

  friend bool operator==(const BlockHash&, const BlockHash&) = default;

  // Returns the first 8 bytes, for hash tables: a block hash is a digest, so it needs no further hashing.
  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

// A secret key that replaces block hashes in a journal without tokens: equal hashes stay equal, but reveal nothing without the key.
struct PseudonymKey {
  std::array<std::uint64_t, 2> words{};  // random
  std::uint32_t hash_bytes = 32;         // size of a block hash: 16 with xxhash
};

// One full block of a request; fields as in vLLM V1 (v0.19.0, generate_block_hash_extra_keys). Views, valid during the call.
struct HashInput {
  std::span<const TokenId> tokens;
  std::uint32_t start = 0;  // position of tokens[0] in the request
  std::string_view lora_name;
  std::span<const MultimodalFeature> multimodal;              // candidates: an item counts unless it ended before `start`
  std::string_view cache_salt;                                // empty except in the first block
  std::optional<std::array<std::uint8_t, 32>> embeds_digest;  // SHA-256 of the prompt embeddings, if given instead of a prompt
  std::string_view lora_path{};                               // only with `tagged_keys`
  bool tagged_keys = false;                                   // each key has a type tag: `DecisionRules::tagged_keys`

  [[nodiscard]] bool counts(const MultimodalFeature& feature) const { return start < feature.position.end(); }
  // Returns the item's start relative to this block's start; negative if the item started in an earlier block.
  [[nodiscard]] std::int64_t placed(const MultimodalFeature& feature) const {
    return std::int64_t{feature.position.offset()} - std::int64_t{start};
  }
  // Returns the number of keys in addition to the tokens. 0: None in vLLM.
  [[nodiscard]] std::size_t num_extra_keys() const {
    const auto items = std::ranges::count_if(multimodal, [this](const MultimodalFeature& feature) { return counts(feature); });
    return static_cast<std::size_t>(items) + (lora_name.empty() ? 0 : 1) + (cache_salt.empty() ? 0 : 1) + (embeds_digest ? 1 : 0);
  }
};

// Computes block hashes. A host provides one if hashes must equal another engine's. Must be a pure function of its arguments. Called on the
// core's thread, when a request is added and when its outputs fill a block.
class HashFunction {
 public:
  virtual ~HashFunction() = default;
  // Returns as many bytes as PrefixCacheOptions::hash says: 32, or 16 (xxhash). `parent` is null for the first block.
  virtual BlockHash hash(const BlockHash* parent, const HashInput& input) = 0;
};

}  // namespace quire
