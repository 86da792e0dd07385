#pragma once
// Base of the managers of all kinds of attention: manages one cache group's blocks of every sequence. The rules are vLLM V1's
// SingleTypeKVCacheManager (v0.19.0). The kinds differ in the tokens that they skip, and hide the methods in which they deviate. All token
// counts are per sequence, from its start.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/kv/block_pool.h"
#include "core/kv/kv_blocks.h"
#include "core/kv/kv_request.h"
#include "core/kv/tokens_per_block.h"
#include "quire/base/ids.h"

namespace quire {

struct GroupOptions {
  std::uint32_t group = 0;
  std::uint32_t block_size = 16;       // in tokens, multiplied by the number of ranks of context parallelism
  std::uint32_t hash_block_size = 16;  // in tokens
  bool enable_caching = true;
  bool record_new_blocks = false;  // for take_new_block_ids
  bool use_eagle = false;
  bool no_load_for_skipped_tokens = false;     // DecisionRules
  std::optional<std::int64_t> retention = {};  // DecisionRules::caches_windows_sparsely: see PrefixCacheOptions::retention_interval
};

// Number of slots that a sequence needs from a group.
struct GroupDemand {
  std::int64_t num_tokens = 0;             // tokens that need a slot: computed, new and lookahead tokens
  std::int64_t num_main_model_tokens = 0;  // tokens without lookahead
  std::int64_t num_computed_tokens = 0;    // including hit and external tokens
  std::int64_t num_encoder_tokens = 0;     // tokens of the encoder, for cross-attention
  std::int64_t max_in_flight_tokens = 0;   // if positive, the number of blocks is at most `cap_on_blocks()` of this many tokens
  std::int64_t max_model_len = 0;          // for `cap_on_blocks()`
  std::int64_t max_step_tokens = 0;        // if positive, the number of blocks is at most `max_held_blocks()` of this many tokens
};

// Selects the blocks of a sliding-window group that get a block hash: only blocks that a later hit can need.
struct WindowReach {
  std::int64_t need = 0;         // number of blocks that a hit needs
  std::int64_t shift = 0;        // number of these blocks that lie after the end of the hit
  std::int64_t per_segment = 0;  // number of blocks between two regular ends of hits; 0: only `ends` are ends of hits
  std::array<std::int64_t, 3> ends{};
  std::size_t num_ends = 0;

  [[nodiscard]] bool contains(std::int64_t block) const {
    if (per_segment > 0 && block >= shift && (block - shift) % per_segment >= per_segment - need) return true;
    return std::ranges::any_of(std::span(ends).first(num_ends), [&](std::int64_t end) { return block >= end - need && block < end; });
  }
};

// The point at which a child splits from its parent, in tokens.
struct ForkPoint {
  std::int64_t num_computed = 0;  // computed tokens of the child
  std::int64_t parent_next = 0;   // the parent will not write tokens before this one again
  std::int64_t parent_state = 0;  // number of tokens that the parent's states cover after all scheduled steps have run
};

// The managers have no virtual functions, because every step calls every group for every request. A std::variant (kv_coordinator.h) holds
// the managers, so that calls are inlined. A derived class hides a method to deviate, and calls the base method for the shared part.
class GroupManager {
 public:
  GroupManager(const GroupOptions& options, BlockPool& pool);

  [[nodiscard]] std::uint32_t group() const { return options_.group; }
  // Tokens and blocks are converted only by this object, so that rounding is the same everywhere.
  [[nodiscard]] const TokensPerBlock& tokens_per_block() const { return tokens_; }

  // Returns the number of tracked sequences: sequences that have used this manager and were not freed since.
  [[nodiscard]] std::uint32_t num_tracked() const { return num_tracked_; }

  // For forks (kv_cache_manager.h). Returns whether the parent has all blocks to which the token after the first num_computed tokens
  // attends.
  [[nodiscard]] bool can_share(const GroupBlockList& parent, std::int64_t num_computed, std::int64_t num_skipped) const;
  void share(GroupBlockList& parent, GroupBlockList& child, const ForkPoint& point, std::int64_t num_skipped);
  // Returns whether the token after the first num_computed tokens is written to a block that other sequences hold too.
  [[nodiscard]] bool writes_shared(const GroupBlockList& list, std::int64_t num_computed) const {
    QUIRE_CHECK(!list.shared_block || *list.shared_block < list.blocks.size(), "a shared block is in its list");
    return list.shared_block && tokens_.floor(num_computed) <= *list.shared_block && pool_.ref_count(list.blocks[*list.shared_block]) > 1;
  }
  // Makes the block of writes_shared() private: replaces it by a copy, or keeps it if no other sequence holds it any more.
  void copy_written_block(GroupBlockList& list, std::int64_t num_computed);

  // Returns how many blocks of the first num_tokens tokens are held by this sequence only.
  [[nodiscard]] std::uint32_t num_exclusive(const GroupBlockList& list, std::int64_t num_tokens) const;
  // Releases every block after the first num_tokens tokens, and the blocks that num_exclusive() counts, in the order of free(). In the
  // list, null blocks replace the blocks that num_exclusive() counts; `taken` receives the indices of these blocks.
  void swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken);
  // swap_in() allocates a new block for a block in `taken`. restore_hashes() gives it the hash of the old block.
  void swap_in(GroupBlockList& list, SwappedOutBlock& taken);
  void restore_hashes(const GroupBlockList& list, const KvRequest& request, const SwappedOutBlock& taken);

  // Releases the blocks, the last block first: the free queue then reuses the end of a prefix before its beginning. Also allowed for a
  // sequence that is not tracked.
  void free(GroupBlockList& list);
  // Removes the blocks from the list and appends all but null blocks to `blocks`, the first block first. Unlike free(), keeps their
  // references.
  void release_blocks(GroupBlockList& list, std::vector<BlockId>& blocks);
  // Sets the hashes of the full blocks of the first num_tokens tokens, beginning with the first block without a hash. A block hash never
  // changes, because it depends only on the tokens up to the block's end.
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens) { cache_where(list, request, num_tokens, nullptr); }
  std::uint32_t common_prefix(GroupBlockList&) { return 0; }
  void new_step_starts() {}
  // Appends the blocks that were allocated since the last call to `out`, if GroupOptions::record_new_blocks is set.
  void take_new_block_ids(std::vector<BlockId>& out);
  // Appends `num_blocks` new blocks; none if the number is negative. For external tokens, the number is the result of the kind's attach().
  void append_new(GroupBlockList& list, std::int64_t num_blocks);
  void set_block_hash(BlockId block, const BlockHashList& names, std::size_t place);
  // Returns the number of blocks in the list of a sequence with `num_tokens` slots.
  [[nodiscard]] std::int64_t max_blocks(std::int64_t num_tokens) const { return tokens_.ceil(num_tokens); }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it. The
  // members of derived classes need not be saved; kv_coordinator.h says why.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [options, tokens, pool, num_tracked, new_block_ids, named, dropped] = self;
    form(num_tracked, new_block_ids);
    form.expect(std::ranges::all_of(new_block_ids, [&](BlockId block) { return block.value < pool.num_blocks(); }),
                "new blocks are in the pool");
  }

 protected:
  // Returns how many blocks the free queue must supply: new blocks, and hit blocks that no sequence holds. `num_skipped` is the result of
  // the kind's num_skipped_tokens().
  [[nodiscard]] std::int64_t count_needed(const GroupBlockList& list, std::int64_t num_tokens, std::span<const BlockId> hit,
                                          std::int64_t num_skipped, std::int64_t most = INT64_MAX) const;
  // Attaches the hit. Returns the number of new blocks that are needed for the external tokens after the hit.
  std::int64_t attach_hit(GroupBlockList& list, std::span<const BlockId> hit, std::int64_t num_local, std::int64_t num_external,
                          std::int64_t num_skipped);
  void extend(GroupBlockList& list, std::int64_t num_tokens);
  // Sets hashes like cache(), but only for blocks that `reach` contains. Null: for all blocks.
  void cache_where(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens, const WindowReach* reach);
  void drop_skipped(GroupBlockList& list, std::int64_t num_skipped);

  void track(GroupBlockList& list);
  void forget(GroupBlockList& list);
  [[nodiscard]] std::int64_t num_unreferenced(std::span<const BlockId> hit) const;

  GroupOptions options_;
  TokensPerBlock tokens_;
  BlockPool& pool_;
  std::uint32_t num_tracked_ = 0;  // sequences with an entry: vLLM's len(req_to_blocks)

 private:
  std::vector<BlockId> new_block_ids_;
  std::vector<BlockId> named_, dropped_;  // scratch of cache_where() and drop_skipped()
};

// Base of the kinds of attention in which later tokens do not attend to early tokens, so that the blocks of early tokens are released.
// Kind::num_skipped_tokens(computed) returns the number of these early tokens.
template <class Kind>
// NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility): the constructors are GroupManager's
class SkippingManager : public GroupManager {
 public:
  using GroupManager::GroupManager;

  [[nodiscard]] std::int64_t blocks_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const {
    const std::int64_t most =
        demand.max_in_flight_tokens > 0 ? kind().cap_on_blocks(demand.max_in_flight_tokens, demand.max_model_len) : INT64_MAX;
    const std::int64_t needed = count_needed(list, demand.num_tokens, hit, kind().num_skipped_tokens(demand.num_computed_tokens), most);
    return demand.max_step_tokens > 0 ? std::min(needed, kind().max_held_blocks(demand.max_step_tokens)) : needed;
  }
  std::int64_t attach(GroupBlockList& list, std::span<const BlockId> hit, std::int64_t num_local, std::int64_t num_external) {
    return attach_hit(list, hit, num_local, num_external, kind().num_skipped_tokens(num_local + num_external));
  }
  void allocate(GroupBlockList& list, const GroupDemand& demand) { extend(list, demand.num_tokens); }
  void remove_skipped(GroupBlockList& list, std::int64_t num_computed) { drop_skipped(list, kind().num_skipped_tokens(num_computed)); }
  [[nodiscard]] bool can_share(const GroupBlockList& parent, const ForkPoint& point) const {
    return GroupManager::can_share(parent, point.num_computed, kind().num_skipped_tokens(point.num_computed));
  }
  void share(GroupBlockList& parent, GroupBlockList& child, const ForkPoint& point) {
    GroupManager::share(parent, child, point, kind().num_skipped_tokens(point.num_computed));
  }

 private:
  [[nodiscard]] const Kind& kind() const { return static_cast<const Kind&>(*this); }
};

}  // namespace quire
