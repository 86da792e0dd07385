#pragma once
// What the managers of all attention kinds share: the blocks of one cache group of every sequence. The rules are those of vLLM V1's
// SingleTypeKVCacheManager (v0.19.0). Kinds differ in what they skip, and hide the methods in which they deviate; they are joined by a
// variant (kv_coordinator.h), not by virtual calls. All token counts are of one sequence, from its start.
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
  std::uint32_t block_size = 16;       // tokens, context parallelism multiplied in
  std::uint32_t hash_block_size = 16;  // tokens
  bool enable_caching = true;
  bool record_new_blocks = false;  // for take_new_block_ids
  bool use_eagle = false;
  bool passed_load_nothing = false;            // DecisionRules
  std::optional<std::int64_t> retention = {};  // DecisionRules::sparse_windows: see PrefixCacheOptions::retention_interval
};

// What one step asks of a group.
struct GroupDemand {
  std::int64_t num_tokens = 0;             // need a slot: computed, new, lookahead
  std::int64_t num_main_model_tokens = 0;  // without lookahead
  std::int64_t num_computed_tokens = 0;    // hit and external ones among them
  std::int64_t num_encoder_tokens = 0;     // what cross-attention goes by
  std::int64_t max_in_flight_tokens = 0;   // where positive: of no more tokens blocks are needed than a kind holds at once (cap_on_blocks)
  std::int64_t max_model_len = 0;          // with that
  std::int64_t max_step_tokens = 0;        // where positive: no more blocks are needed than are held at once in steps of so many tokens
};

// Which blocks of a window get a name: those that a hit can begin behind.
struct WindowReach {
  std::int64_t need = 0;         // blocks that a hit takes
  std::int64_t shift = 0;        // so many of them lie behind where it ends
  std::int64_t per_segment = 0;  // blocks between two such places; 0: there are only `ends`
  std::array<std::int64_t, 3> ends{};
  std::size_t num_ends = 0;

  [[nodiscard]] bool contains(std::int64_t block) const {
    if (per_segment > 0 && block >= shift && (block - shift) % per_segment >= per_segment - need) return true;
    return std::ranges::any_of(std::span(ends).first(num_ends), [&](std::int64_t end) { return block >= end - need && block < end; });
  }
};

// Where a child leaves its parent, in tokens.
struct ForkPoint {
  std::int64_t num_computed = 0;  // of the child
  std::int64_t parent_next = 0;   // the parent writes nothing before it any more
  std::int64_t parent_state = 0;  // behind so many tokens of the parent its states are, when the plans under way have run
};

// No virtual calls: a step asks every group of every request, so the managers are joined by a variant and inlined. A derived class hides a
// method in order to deviate, and calls the one here for what it shares.
class GroupManager {
 public:
  GroupManager(const GroupOptions& options, BlockPool& pool);

  [[nodiscard]] std::uint32_t group() const { return options_.group; }
  // Tokens and blocks are converted through this alone, so that rounding is the same everywhere.
  [[nodiscard]] const TokensPerBlock& tokens_per_block() const { return tokens_; }

  // Sequences that were met and not freed.
  [[nodiscard]] std::uint32_t num_tracked() const { return num_tracked_; }

  // Forks (kv_cache_manager.h). Whether the parent has all blocks that the token after the first num_computed attends to.
  [[nodiscard]] bool can_share(const GroupBlockList& parent, std::int64_t num_computed, std::int64_t num_skipped) const;
  void share(GroupBlockList& parent, GroupBlockList& child, const ForkPoint& point, std::int64_t num_skipped);
  // What comes after the first num_computed tokens is written to a block that others hold too.
  [[nodiscard]] bool writes_shared(const GroupBlockList& list, std::int64_t num_computed) const {
    QUIRE_CHECK(!list.shared_block || *list.shared_block < list.blocks.size(), "a shared block is one of the list");
    return list.shared_block && tokens_.floor(num_computed) <= *list.shared_block && pool_.ref_count(list.blocks[*list.shared_block]) > 1;
  }
  // That block is its own from now on: a copy, or itself where nobody else holds it any more.
  void own_written(GroupBlockList& list, std::int64_t num_computed);

  // Of the blocks of the first num_tokens tokens, those that nobody else holds.
  [[nodiscard]] std::uint32_t num_own(const GroupBlockList& list, std::int64_t num_tokens) const;
  // Gives these back, with all behind these tokens, in the order of free(); null blocks stand in their places.
  void take_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<TakenBlock>& taken);
  // Another block into such a place; and it becomes findable by the name that the one before it had.
  void bring_back(GroupBlockList& list, TakenBlock& taken);
  void name_again(const GroupBlockList& list, const KvRequest& request, const TakenBlock& taken);

  // Forgets nothing of the sequence but its blocks; allowed for a sequence never met.
  // The last block first: the free queue then takes the end of a prefix before its beginning.
  void free(GroupBlockList& list);
  // The same, but the blocks keep their references, and go to the end of `blocks`, the first one first.
  void give_up(GroupBlockList& list, std::vector<BlockId>& blocks);
  // Makes the full blocks of the first num_tokens tokens findable, from the first that has no name on. Names never change: the tokens
  // before a block decide its name.
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens) { cache_where(list, request, num_tokens, nullptr); }
  std::uint32_t common_prefix(GroupBlockList&) { return 0; }
  void new_step_starts() {}
  // Appends the blocks taken since the last call, with GroupOptions::record_new_blocks.
  void take_new_block_ids(std::vector<BlockId>& out);
  // For external tokens, as many as the attach() of the kinds has answered.
  void append_new(GroupBlockList& list, std::int64_t num_blocks);
  void name_block(BlockId block, const BlockHashList& names, std::size_t place);
  // The list's length when the sequence has so many slots.
  [[nodiscard]] std::int64_t max_blocks(std::int64_t num_tokens) const { return tokens_.ceil(num_tokens); }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  // Kinds add nothing that lasts from call to call; kv_coordinator.h says what they add.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [options, tokens, pool, num_tracked, new_block_ids, named, dropped] = self;
    form(num_tracked, new_block_ids);
    form.expect(std::ranges::all_of(new_block_ids, [&](BlockId block) { return block.value < pool.num_blocks(); }),
                "blocks are of the pool");
  }

 protected:
  // Blocks that the free queue must give: new ones, and hits that nobody holds. `num_skipped`: see num_skipped_tokens() of the kinds.
  [[nodiscard]] std::int64_t count_needed(const GroupBlockList& list, std::int64_t num_tokens, std::span<const BlockId> hit,
                                          std::int64_t num_skipped, std::int64_t most = INT64_MAX) const;
  // The number of new blocks that the external tokens need behind it.
  std::int64_t attach_hit(GroupBlockList& list, std::span<const BlockId> hit, std::int64_t num_local, std::int64_t num_external,
                          std::int64_t num_skipped);
  void extend(GroupBlockList& list, std::int64_t num_tokens);
  // As cache(); of the blocks that become full only those within reach get a name. Null: all.
  void cache_where(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens, const WindowReach* reach);
  void drop_skipped(GroupBlockList& list, std::int64_t num_skipped);

  void track(GroupBlockList& list);
  void forget(GroupBlockList& list);
  [[nodiscard]] std::int64_t num_unheld(std::span<const BlockId> hit) const;

  GroupOptions options_;
  TokensPerBlock tokens_;
  BlockPool& pool_;
  std::uint32_t num_tracked_ = 0;  // sequences that have an entry: vLLM's len(req_to_blocks)

 private:
  std::vector<BlockId> new_block_ids_;
  std::vector<BlockId> named_, dropped_;  // within cache_where() and drop_skipped()
};

// A kind that skips blocks for good, by Kind::num_skipped_tokens(computed): tokens that no later one attends to.
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
