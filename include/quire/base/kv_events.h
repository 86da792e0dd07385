#pragma once
// Changes of the prefix cache and of tiers, as values for programs that mirror them (routers). The fields are as in vLLM V1's
// distributed/kv_events (v0.19.0), plus group_idx (v0.32.0). Each outcome of the core contains its events, in the order of the changes. Any
// thread may use a copy.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// The bytes of a block hash, as many as the hash algorithm gives. If a block of a group spans several hash blocks, their hashes are
// concatenated. vLLM's integer form is the last eight bytes, big-endian.
using KvEventHash = std::vector<std::uint8_t>;

// A multimodal item (image, audio) in a block: its identifier, and its start relative to the block's first token (negative: before that
// token).
struct MultimodalKey {
  std::string identifier;
  std::int64_t offset = 0;

  friend bool operator==(const MultimodalKey&, const MultimodalKey&) = default;
};

// An extra key of a block hash. Keys come in this order: adapter name (string), items, cache salt (string), digest of prompt embeddings
// (bytes).
using KvExtraKey = std::variant<std::string, MultimodalKey, std::vector<std::uint8_t>>;
using KvExtraKeys = std::vector<KvExtraKey>;

// Reports that blocks were added in one operation to the cache that `medium` names. Blocks of the prefix cache ("GPU") are in the order of
// their tokens. Blocks of a tier come without parent and tokens.
struct BlockStored {
  std::vector<KvEventHash> block_hashes;         // without null blocks
  std::optional<KvEventHash> parent_block_hash;  // nullopt: the first block begins the sequence
  // Tokens of all blocks, including null blocks: block_size tokens per block, block after block. Empty for a tier.
  std::vector<TokenId> token_ids;
  std::uint32_t block_size = 0;
  std::optional<std::int64_t> lora_id;
  std::string medium = "GPU";  // the prefix cache; tiers have other names, as in vLLM
  std::optional<std::string> lora_name;
  std::optional<std::vector<std::optional<KvExtraKeys>>> extra_keys;  // one per hash; nullopt: there are no hashes
  std::uint32_t group_idx = 0;                                        // cache group of the blocks

  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

// Reports that one block with this hash was removed from the cache that `medium` names: it was evicted, or its content is invalid. In the
// prefix cache ("GPU") another block may have the same hash.
struct BlockRemoved {
  KvEventHash block_hash;
  std::string medium = "GPU";  // as in BlockStored
  std::uint32_t group_idx = 0;

  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

// Reports that the prefix cache was reset. A mirror must remove all blocks.
struct AllBlocksCleared {
  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using KvEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace quire
