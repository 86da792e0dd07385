#pragma once
// The part that managers of all attention kinds share: the blocks of one cache group of every sequence. The rules are vLLM V1's
// SingleTypeKVCacheManager (v0.19.0). Kinds differ in the tokens that they skip, and hide the methods in which they deviate. All token
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
  std::uint32_t block_size = 16;       // in tokens, multiplied by context parallelism
  std::uint32_t hash_block_size = 16;  // in tokens
  bool enable_caching = true;
  bool record_new_blocks = false;  // for take_new_block_ids
  bool use_eagle = false;
  bool no_load_for_skipped_tokens = false;     // DecisionRules
  std::optional<std::int64_t> retention = {};  // DecisionRules::caches_windows_sparsely: see PrefixCacheOptions::retention_interval
};

// Slots that one step needs from a group.
struct GroupDemand {
  std::int64_t num_tokens = 0;             // tokens that need a slot: computed, new and lookahead
  std::int64_t num_main_model_tokens = 0;  // tokens without lookahead
  std::int64_t num_computed_tokens = 0;    // including hit and external tokens
  std::int64_t num_encoder_tokens = 0;     // tokens of the encoder, for cross-attention
  std::int64_t max_in_flight_tokens = 0;   // if positive, limits the count of blocks to `cap_on_blocks()` of so many tokens
  std::int64_t max_model_len = 0;          // for `cap_on_blocks()`
  std::int64_t max_step_tokens = 0;        // if positive, limits the count of blocks to `max_held_blocks()` of so many tokens
};

// Selects the blocks of a window group that get a block hash: blocks that a later hit can need.
struct WindowReach {
  std::int64_t need = 0;         // blocks that a hit needs
  std::int64_t shift = 0;        // number of them after the end of the hit
  std::int64_t per_segment = 0;  // blocks between two regular ends of hits; 0: there are only `ends`
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
  std::int64_t parent_next = 0;   // the parent writes no token before this one again
  std::int64_t parent_state = 0;  // tokens that the parent's states cover once the plans in flight have run
};

// Not virtual: every step calls every group for every request, so a variant (kv_coordinator.h) joins the managers and calls are inlined. A
// derived class hides a method to deviate, and calls the base method for the shared part.
class GroupManager {
 public:
  GroupManager(const GroupOptions& options, BlockPool& pool);

  [[nodiscard]] std::uint32_t group() const { return options_.group; }
  // Tokens and blocks are converted only through this object, so that rounding is the same everywhere.
  [[nodiscard]] const TokensPerBlock& tokens_per_block() const { return tokens_; }

  // Returns the number of tracked sequences: met and not freed.
  [[nodiscard]] std::uint32_t num_tracked() const { return num_tracked_; }

  // Forks (kv_cache_manager.h). Returns whether the parent has all blocks that the token after the first num_computed attends to.
  [[nodiscard]] bool can_share(const GroupBlockList& parent, std::int64_t num_computed, std::int64_t num_skipped) const;
  void share(GroupBlockList& parent, GroupBlockList& child, const ForkPoint& point, std::int64_t num_skipped);
  // Returns whether the token after the first num_computed is written to a block that other sequences hold too.
  [[nodiscard]] bool writes_shared(const GroupBlockList& list, std::int64_t num_computed) const {
    QUIRE_CHECK(!list.shared_block || *list.shared_block < list.blocks.size(), "a shared block is in its list");
    return list.shared_block && tokens_.floor(num_computed) <= *list.shared_block && pool_.ref_count(list.blocks[*list.shared_block]) > 1;
  }
  // Makes that block private: a copy, or the block itself if no other sequence holds it any more.
  void copy_written_block(GroupBlockList& list, std::int64_t num_computed);

  // Returns how many blocks of the first num_tokens tokens only this sequence holds.
  [[nodiscard]] std::uint32_t num_exclusive(const GroupBlockList& list, std::int64_t num_tokens) const;
  // Releases these blocks, and every block after these tokens, in the order of free(). Null blocks replace the taken ones in the list.
  void swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken);
  // swap_in() allocates a new block for a taken one. restore_hashes() makes it findable under the hash that the old block had.
  void swap_in(GroupBlockList& list, SwappedOutBlock& taken);
  void restore_hashes(const GroupBlockList& list, const KvRequest& request, const SwappedOutBlock& taken);

  // Releases the blocks, the last one first: the free queue then reuses the end of a prefix before its beginning. Allowed for a sequence
  // that is not tracked.
  void free(GroupBlockList& list);
  // Like free(), but the blocks keep their references and are appended to `blocks`, the first one first.
  void release_blocks(GroupBlockList& list, std::vector<BlockId>& blocks);
  // Makes the full blocks of the first num_tokens tokens findable, from the first one without a hash on. A block hash never changes,
  // because the tokens up to the block's end decide it.
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens) { cache_where(list, request, num_tokens, nullptr); }
  std::uint32_t common_prefix(GroupBlockList&) { return 0; }
  void new_step_starts() {}
  // Appends the blocks that were allocated since the last call, if GroupOptions::record_new_blocks is set.
  void take_new_block_ids(std::vector<BlockId>& out);
  // Allocates blocks for external tokens, as many as the kind's attach() returned.
  void append_new(GroupBlockList& list, std::int64_t num_blocks);
  void set_block_hash(BlockId block, const BlockHashList& names, std::size_t place);
  // Returns the length of the list of a sequence with so many slots.
  [[nodiscard]] std::int64_t max_blocks(std::int64_t num_tokens) const { return tokens_.ceil(num_tokens); }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile. Kinds add nothing
  // that lasts from call to call; kv_coordinator.h explains what they add.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [options, tokens, pool, num_tracked, new_block_ids, named, dropped] = self;
    form(num_tracked, new_block_ids);
    form.expect(std::ranges::all_of(new_block_ids, [&](BlockId block) { return block.value < pool.num_blocks(); }),
                "new blocks are in the pool");
  }

 protected:
  // Returns how many blocks the free queue must supply: new ones, and hits that no sequence holds. `num_skipped`: see num_skipped_tokens()
  // of the kinds.
  [[nodiscard]] std::int64_t count_needed(const GroupBlockList& list, std::int64_t num_tokens, std::span<const BlockId> hit,
                                          std::int64_t num_skipped, std::int64_t most = INT64_MAX) const;
  // Attaches the hit. Returns the number of new blocks that the external tokens after it need.
  std::int64_t attach_hit(GroupBlockList& list, std::span<const BlockId> hit, std::int64_t num_local, std::int64_t num_external,
                          std::int64_t num_skipped);
  void extend(GroupBlockList& list, std::int64_t num_tokens);
  // Like cache(), but only newly full blocks within reach get a hash. Null: all of them.
  void cache_where(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens, const WindowReach* reach);
  void drop_skipped(GroupBlockList& list, std::int64_t num_skipped);

  void track(GroupBlockList& list);
  void forget(GroupBlockList& list);
  [[nodiscard]] std::int64_t num_unreferenced(std::span<const BlockId> hit) const;

  GroupOptions options_;
  TokensPerBlock tokens_;
  BlockPool& pool_;
  std::uint32_t num_tracked_ = 0;  // sequences that have an entry: vLLM's len(req_to_blocks)

 private:
  std::vector<BlockId> new_block_ids_;
  std::vector<BlockId> named_, dropped_;  // scratch of cache_where() and drop_skipped()
};

// A kind that drops blocks for good. Kind::num_skipped_tokens(computed) counts the tokens that no later token attends to.
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
