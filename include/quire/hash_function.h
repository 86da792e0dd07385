#pragma once
// Interface of functions that compute block hashes (CoreSeams::hash). A block hash represents the keys and values of a full block. It must
// depend on the block's tokens, on all tokens before them (through the parent's hash), and on everything else that changes the keys and
// values of equal tokens. Blocks with equal hashes are treated as the same block, so hashes must not collide.
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

  // Returns the first 8 bytes, for hash tables. A block hash is a digest, so it needs no further hashing.
  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

// The secret key under which a journal without tokens replaces block hashes. Equal hashes stay equal, and without the key they reveal
// nothing about the tokens.
struct PseudonymKey {
  std::array<std::uint64_t, 2> words{};  // random
  std::uint32_t hash_bytes = 32;         // size of a block hash: 16 with xxhash
};

// The content of one full block of a request, which HashFunction::hash() hashes. The fields are as in vLLM V1 (v0.19.0,
// generate_block_hash_extra_keys). Views, valid during the call.
struct HashInput {
  std::span<const TokenId> tokens;
  std::uint32_t start = 0;  // position of tokens[0] in the request
  std::string_view lora_name;
  std::span<const MultimodalFeature> multimodal;              // candidates: counts() excludes items that end before `start`
  std::string_view cache_salt;                                // empty except in the first block
  std::optional<std::array<std::uint8_t, 32>> embeds_digest;  // SHA-256 of the prompt embeddings, if given instead of a prompt
  std::string_view lora_path{};                               // only with `tagged_keys`
  bool tagged_keys = false;                                   // each key has a type tag: `DecisionRules::tagged_keys`

  [[nodiscard]] bool counts(const MultimodalFeature& feature) const { return start < feature.position.end(); }
  // Returns the item's first token relative to this block's first token; negative if the item began in an earlier block.
  [[nodiscard]] std::int64_t placed(const MultimodalFeature& feature) const {
    return std::int64_t{feature.position.offset()} - std::int64_t{start};
  }
  // Returns the number of extra keys, which are hashed together with the tokens. If it is 0, vLLM hashes None instead of extra keys.
  [[nodiscard]] std::size_t num_extra_keys() const {
    const auto items = std::ranges::count_if(multimodal, [this](const MultimodalFeature& feature) { return counts(feature); });
    return static_cast<std::size_t>(items) + (lora_name.empty() ? 0 : 1) + (cache_salt.empty() ? 0 : 1) + (embeds_digest ? 1 : 0);
  }
};

// Computes block hashes. A host implements it if its block hashes must equal the block hashes of another engine. hash() must be a pure
// function of its arguments. Called on the core's thread, when a request is added and when its outputs fill a block.
class HashFunction {
 public:
  virtual ~HashFunction() = default;
  // Returns the block's hash, of the size that PrefixCacheOptions::hash requires: 32 bytes, or 16 with xxhash. `parent` is the hash of the
  // block before; null for the first block.
  virtual BlockHash hash(const BlockHash* parent, const HashInput& input) = 0;
};

}  // namespace quire
