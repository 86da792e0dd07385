#pragma once
// What happened to cached blocks, as values for whoever mirrors the cache (routers, tiers). The fields are those of vLLM V1's
// distributed/kv_events (v0.19.0), and group_idx (v0.32.0).
// Made by the core with each outcome, in the order in which things happened; copies are any thread's.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// The bytes of a block's name as the hash mode made them (several names one after the other where a group's blocks span several hash
// blocks). vLLM's integer form is the last eight bytes, big-endian.
using KvEventHash = std::vector<std::uint8_t>;

// An image or sound in a block: its identifier, and where it starts relative to the block's first token (negative: before it).
struct MultimodalKey {
  std::string identifier;
  std::int64_t offset = 0;

  friend bool operator==(const MultimodalKey&, const MultimodalKey&) = default;
};

// In this order: adapter name (string), items, cache salt (string), digest of prompt embeddings (bytes).
using KvExtraKey = std::variant<std::string, MultimodalKey, std::vector<std::uint8_t>>;
using KvExtraKeys = std::vector<KvExtraKey>;

// Blocks became findable, in the order of the tokens, in one go.
struct BlockStored {
  std::vector<KvEventHash> block_hashes;         // null blocks are left out
  std::optional<KvEventHash> parent_block_hash;  // nullopt: the first block is the sequence's first
  // block_size tokens of each block, one block after the other.
  std::vector<TokenId> token_ids;  // of all blocks, null blocks included
  std::uint32_t block_size = 0;
  std::optional<std::int64_t> lora_id;
  std::string medium = "GPU";
  std::optional<std::string> lora_name;
  std::optional<std::vector<std::optional<KvExtraKeys>>> extra_keys;  // one per hash; nullopt: no hashes
  std::uint32_t group_idx = 0;                                        // the cache group whose blocks they are

  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

// A block's name was forgotten: it was needed for new content, or taken back.
struct BlockRemoved {
  KvEventHash block_hash;
  std::string medium = "GPU";
  std::uint32_t group_idx = 0;

  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

// The prefix cache was reset: whoever mirrors it forgets everything.
struct AllBlocksCleared {
  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};

using KvEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace quire
