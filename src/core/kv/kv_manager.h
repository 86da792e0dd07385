#pragma once
// Blocks for requests whose layers all use full attention: looks up cached prefixes, allocates room for the tokens of a step, names
// blocks as they fill, and frees.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kv/block_hash.h"
#include "core/kv/block_pool.h"
#include "core/kv/event_sink.h"
#include "core/kv/extra_keys.h"
#include "quire/ids.h"

namespace quire {

// The blocks and block names of one request; changed by KvManager only.
class KvSequence {
 public:
  // In the order of the tokens.
  [[nodiscard]] std::span<const BlockId> blocks() const { return blocks_; }
  // One per full block of known tokens; empty without prefix caching.
  [[nodiscard]] std::span<const BlockHash> hashes() const { return hashes_; }
  // blocks()[0 .. num_cached_blocks()) carry their names.
  [[nodiscard]] std::uint32_t num_cached_blocks() const { return num_cached_blocks_; }

 private:
  friend class KvManager;
  std::vector<BlockId> blocks_;
  std::vector<BlockHash> hashes_;
  std::uint32_t num_cached_blocks_ = 0;
};

// A view, valid until the manager's next find_prefix().
struct PrefixHit {
  std::span<const BlockId> blocks;
  std::uint32_t num_tokens = 0;
};

struct KvManagerOptions {
  std::uint32_t block_size = 16;  // tokens
  std::uint32_t num_blocks = 0;   // with the null block
  std::uint32_t max_model_len = 0;
  bool enable_prefix_caching = true;
};

// What a request needs of one step. num_known_tokens: prompt and outputs; more are never cached.
struct KvDemand {
  std::uint32_t num_computed_tokens = 0;  // without the hit
  std::uint32_t num_new_tokens = 0;
  std::uint32_t num_known_tokens = 0;
};

class KvManager {
 public:
  // `hasher` must outlive the manager; `events` may be null.
  KvManager(const KvManagerOptions& options, BlockHasher& hasher, EventSink* events);

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] std::uint32_t block_size() const { return options_.block_size; }
  // Held blocks over all blocks but the null one.
  [[nodiscard]] double usage() const;

  // Room for the blocks and names of so many tokens, so that later calls on this sequence allocate no memory.
  void reserve(KvSequence& sequence, std::uint32_t num_tokens) const;

  // Names the blocks that have become full of known tokens; `tokens` are all of them.
  void extend_hashes(KvSequence& sequence, std::span<const TokenId> tokens, const ExtraKeys& extra);

  // The longest cached prefix of at most num_known_tokens - 1 tokens: one token at least must run, to have something to sample from.
  // Nothing is taken yet.
  [[nodiscard]] PrefixHit find_prefix(const KvSequence& sequence, std::uint32_t num_known_tokens);

  // Blocks that lack for the whole known sequence; 0: it fits.
  [[nodiscard]] std::uint32_t missing_for_full_sequence(const KvSequence& sequence, const PrefixHit& hit,
                                                        std::uint32_t num_known_tokens) const;

  // Takes the hit's blocks, then new ones for the demand, then makes full blocks findable. Returns the number of blocks that lack; if it
  // is not 0, nothing has changed. Newly full blocks are findable before they are computed: whoever hits them runs in the same step or
  // later, and a step writes before it reads.
  [[nodiscard]] std::uint32_t allocate(KvSequence& sequence, const PrefixHit& hit, const KvDemand& demand);

  // Gives all blocks back, last one first, so that a prefix outlives its continuations. Names of the tokens stay.
  void free(KvSequence& sequence);

  bool reset_prefix_cache() { return pool_.reset(); }

  // Adds the sequence's references to `holders` and checks that its blocks carry its names.
  void check_sequence(const KvSequence& sequence, std::span<std::uint32_t> holders) const;

 private:
  [[nodiscard]] std::uint32_t num_blocks_for(std::uint32_t num_tokens) const {
    return (num_tokens + options_.block_size - 1) / options_.block_size;
  }
  [[nodiscard]] std::uint32_t num_blocks_to_take(const KvSequence& sequence, const PrefixHit& hit, std::uint32_t num_tokens) const;
  [[nodiscard]] std::uint32_t missing(std::uint32_t num_blocks) const;
  void attach(KvSequence& sequence, const PrefixHit& hit);
  void cache_full_blocks(KvSequence& sequence, std::uint32_t num_tokens);

  KvManagerOptions options_;
  BlockPool pool_;
  BlockHasher& hasher_;
  std::vector<BlockId> hit_;  // backs the last PrefixHit
};

}  // namespace quire
