#pragma once
// Changes of the prefix cache, as values for programs that mirror it (routers, tiers). The fields are as in vLLM V1's distributed/kv_events
// (v0.19.0), and group_idx (v0.32.0). Each outcome of the core carries its events, in the order in which the changes happened. Any thread
// may use a copy.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// The bytes of a block hash as the hash algorithm gives them. If a group's blocks span several hash blocks, their hashes are concatenated.
// vLLM's integer form is the last eight bytes, big-endian.
using KvEventHash = std::vector<std::uint8_t>;

// An image, audio or other item in a block: its identifier, and its start relative to the block's first token (negative: before it).
struct MultimodalKey {
  std::string identifier;
  std::int64_t offset = 0;

  friend bool operator==(const MultimodalKey&, const MultimodalKey&) = default;
};

// An extra key of a block hash. Keys come in this order: adapter name (string), items, cache salt (string), digest of prompt embeddings
// (bytes).
using KvExtraKey = std::variant<std::string, MultimodalKey, std::vector<std::uint8_t>>;
using KvExtraKeys = std::vector<KvExtraKey>;

// Blocks were added to the prefix cache in one operation, in the order of their tokens.
struct BlockStored {
  std::vector<KvEventHash> block_hashes;         // null blocks are left out
  std::optional<KvEventHash> parent_block_hash;  // nullopt: the first block begins the sequence
  // Tokens of all blocks, null blocks included: block_size tokens of each, block after block.
  std::vector<TokenId> token_ids;
  std::uint32_t block_size = 0;
  std::optional<std::int64_t> lora_id;
  std::string medium = "GPU";
  std::optional<std::string> lora_name;
  std::optional<std::vector<std::optional<KvExtraKeys>>> extra_keys;  // one per hash; nullopt: there are no hashes
  std::uint32_t group_idx = 0;                                        // cache group of the blocks

  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

// A block hash was removed from the prefix cache: the block was taken for new content, or its content is invalid.
struct BlockRemoved {
  KvEventHash block_hash;
  std::string medium = "GPU";
  std::uint32_t group_idx = 0;

  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

// The prefix cache was reset: a mirror must remove all blocks.
struct AllBlocksCleared {
  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using KvEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace quire
