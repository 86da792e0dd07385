#pragma once
// The seam that names blocks (CoreSeams::hash). A name stands for the keys and values of a full block: it must depend on the block's
// tokens, on all before them (through the parent's name), and on what else makes equal tokens differ. Two blocks with one name are one
// block, so names must not collide.
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

// Names of fewer than 32 bytes end in zeros.
struct BlockHash {
  std::array<std::uint8_t, 32> bytes{};

  friend bool operator==(const BlockHash&, const BlockHash&) = default;

  // The first 8 bytes, for hash tables: a name is a digest already, so it needs no hashing of its own.
  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

// Turns names into others that are equal where they are, and say nothing to who does not have it: a journal without tokens has these.
struct NameKey {
  std::array<std::uint64_t, 2> words{};  // at random
  std::uint32_t name_bytes = 32;         // of a name: 16 with xxhash
};

// One full block of a request, in the order of vLLM V1 (v0.19.0, generate_block_hash_extra_keys). Views, valid during the call.
struct HashInput {
  std::span<const TokenId> tokens;
  std::uint32_t start = 0;  // position of tokens[0] in the request
  std::string_view lora_name;
  std::span<const MultimodalFeature> multimodal;              // candidates: an item counts if it has not ended before `start`
  std::string_view cache_salt;                                // empty but in the first block
  std::optional<std::array<std::uint8_t, 32>> embeds_digest;  // SHA-256, where embeddings were handed in instead of a prompt
  std::string_view lora_path{};                               // with tags only
  bool tagged_keys = false;                                   // each key says what it is: DecisionRules::tagged_keys

  [[nodiscard]] bool counts(const MultimodalFeature& feature) const { return start < feature.position.end(); }
  // Where the item begins, counted from the start of this block; negative where it began in an earlier one.
  [[nodiscard]] std::int64_t placed(const MultimodalFeature& feature) const {
    return std::int64_t{feature.position.offset()} - std::int64_t{start};
  }
  // Keys besides the tokens: 0 is None in vLLM.
  [[nodiscard]] std::size_t num_extra_keys() const {
    const auto items = std::ranges::count_if(multimodal, [this](const MultimodalFeature& feature) { return counts(feature); });
    return static_cast<std::size_t>(items) + (lora_name.empty() ? 0 : 1) + (cache_salt.empty() ? 0 : 1) + (embeds_digest ? 1 : 0);
  }
};

// // A host gives one where names must be equal to those of another engine. It must be a pure function of its arguments.
// Called on the core's thread, when a request is added and when its outputs fill a block.
class HashFunction {
 public:
  virtual ~HashFunction() = default;
  // As many bytes as PrefixCacheOptions::hash says: 32, or 16 (xxhash). `parent` is null for a first block.
  virtual BlockHash hash(const BlockHash* parent, const HashInput& input) = 0;
};

}  // namespace quire
