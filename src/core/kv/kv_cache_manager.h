#pragma once
// Manages blocks for requests: looks up cached prefixes in every cache group, allocates slots for the tokens of a step, caches full blocks,
// releases blocks that a window has passed, and frees. The functions, their order and their effects equal vLLM V1's KVCacheManager
// (v0.19.0) and its parts: block_pool, kv_cache_coordinator, single_type_kv_cache_manager.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/kv/block_pool.h"
#include "core/kv/hash/hash_input.h"
#include "core/kv/kv_blocks.h"
#include "core/kv/kv_request.h"
#include "quire/base/decision_profile.h"
#include "quire/base/error.h"
#include "quire/base/events.h"
#include "quire/base/ids.h"
#include "quire/base/kv_events.h"
#include "quire/base/kv_spec.h"
#include "quire/base/kv_stats.h"
#include "quire/hash_function.h"

namespace quire {

class KvCoordinator;
struct GroupDemand;
struct ReturnDemand;

struct KvCacheOptions {
  std::uint32_t max_model_len = 0;    // in tokens
  std::uint32_t hash_block_size = 0;  // tokens per hash; with caching, each group's block size is a multiple of it
  std::uint32_t hash_bytes = 32;      // meaningful bytes of a BlockHash: 16 with xxhash
  std::uint32_t max_step_tokens = 0;  // if positive: windows of a full sequence are reserved for steps of so many tokens
  bool enable_caching = true;
  bool use_eagle = false;
  bool log_stats = false;
  bool enable_events = false;
  double residency_sample = 0.0;  // share of allocations with measured residency
  bool lifo_free_blocks = false;  // reuse the most recently freed block first, not the least recently used one
  DecisionRules rules = {};
  std::optional<std::int64_t> retention = {};  // with DecisionRules::caches_windows_sparsely: PrefixCacheOptions::retention_interval
  std::uint32_t max_in_flight_tokens = 0;      // with DecisionRules::admission_capped_by_window
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;
};

// The only way to change blocks: requests hold KvBlocks, and only this class modifies them. One per core, called on its thread. It does not
// know queues or policies: it returns how many blocks are missing, and the scheduler decides which request is preempted.
class KvCacheManager {
 public:
  // Returns an error if the configuration violates an assertion of vLLM. `field` names the option or group.
  static Result<void> check(const KvCacheConfig& config, const KvCacheOptions& options);

  // Options must pass check(). `sink` may be null.
  KvCacheManager(const KvCacheConfig& config, const KvCacheOptions& options, EventSink* sink = nullptr);
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] std::uint32_t num_groups() const;
  // Returns the tokens per block of the group, multiplied by context parallelism.
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const;
  // Returns 1 - free / total without the null block. Blocks reserved for sinks count as used.
  [[nodiscard]] double usage() const { return pool_.usage(); }

  // Reserves memory in every group's list for so many tokens, so that later calls on these blocks allocate none.
  void reserve(KvBlocks& blocks, std::uint32_t num_tokens) const;

  // Called once per schedule(). Blocks that were cached before count as computed.
  void new_step_starts();

  // vLLM's get_computed_blocks. Returns the longest cached prefix of at most num_tokens - 1 tokens. Takes no blocks. Each call counts in
  // the statistics, unless caching is off or the request skips it. Under counts_hits_at_admission, and if `counts_now` is false, only
  // count_admission() counts.
  [[nodiscard]] KvHit find_prefix(const KvRequest& request, bool counts_now = true);
  // Counts the look-up of a request that is now admitted and found so many tokens.
  void count_admission(const KvRequest& request, std::uint32_t num_hits);

  // Returns how many tokens find_prefix() would find for a request with these hashes and so many tokens. Counts nothing.
  [[nodiscard]] std::uint32_t count_prefix(std::span<const BlockHash> hashes, std::uint32_t num_tokens);

  // vLLM's can_fit_full_sequence. Returns how many blocks are missing for all known tokens; 0: they fit. `demand` has hit, external and
  // encoder tokens.
  [[nodiscard]] std::uint32_t missing_for_full_sequence(const KvRequest& request, const SlotDemand& demand, const KvHit& hit = {});

  // vLLM's allocate_slots. Attaches the hit, takes blocks for external, new and lookahead tokens, and caches full blocks of known tokens
  // unless delayed. Returns the number of missing blocks; 0: success. On failure nothing is taken, but blocks that a window has passed are
  // released anyway. There must be new or external tokens. A hit is allowed only for a sequence that was freed or never met.
  [[nodiscard]] std::uint32_t allocate_slots(const KvRequest& request, const SlotDemand& demand, const KvHit& hit = {});

  // Gives the blank child the blocks of the parent's first num_computed tokens, which must be known. Both sequences share these blocks. If
  // the last one is not full, allocate_slots() makes it private to the sequence that writes to it (KvBlocks::copy_on_write_block).
  // `parent_next`: the parent writes no token before it again. Returns false and changes nothing if a window has passed blocks that the
  // child needs, or if the state after these tokens was overwritten.
  [[nodiscard]] bool fork(const KvRequest& parent, std::uint32_t parent_next, KvBlocks& child, std::uint32_t num_computed);

  // Caches the full blocks of the first num_computed_tokens tokens. Does nothing without caching.
  void cache_blocks(const KvRequest& request, std::uint32_t num_computed_tokens);

  // Releases all blocks, group by group, the last one first. Allowed in any state.
  void free(KvBlocks& blocks);

  // Returns how many blocks a sequence still needs for all its known tokens and so many more. `slides`: a group with a window counts the
  // blocks that it holds at the same time (with KvCacheOptions::max_step_tokens); otherwise the blocks of all these tokens, as in vLLM.
  [[nodiscard]] std::uint32_t num_future_blocks(const KvRequest& request, std::uint32_t num_more_tokens, bool slides = false);
  // Like free(), but the blocks go back with the first free_due() of this or a greater number. Numbers never decrease.
  void free_later(KvBlocks& blocks, std::uint64_t due);
  void free_due(std::uint64_t now);

  // Swapped-out sequences. Returns how many blocks of the first num_tokens tokens only this sequence holds, in all groups or in one.
  [[nodiscard]] std::uint32_t num_exclusive_blocks(const KvBlocks& blocks, std::uint32_t num_tokens) const;
  [[nodiscard]] std::uint32_t num_exclusive_blocks(const KvBlocks& blocks, std::uint32_t num_tokens, std::uint32_t group) const;
  // Releases these blocks and appends them to `taken`, by group and index. Also releases every block after these tokens. Until swap_in()
  // only free() may be called for the remaining blocks.
  void swap_out(KvBlocks& blocks, std::uint32_t num_tokens, std::vector<SwappedOutBlock>& taken);
  // Allocates a block for each taken one and records it in `taken`. Returns the number of missing blocks; 0: success. On failure nothing is
  // taken.
  [[nodiscard]] std::uint32_t swap_in(const KvRequest& request, std::span<SwappedOutBlock> taken, const ReturnDemand& demand);
  // Called when the blocks have their content again. Blocks that had a hash become findable under it.
  void restore_hashes(const KvRequest& request, std::span<const SwappedOutBlock> taken);
  // Returns whether the sequence holds a block other than the null block.
  [[nodiscard]] static bool holds_any(const KvBlocks& blocks);

  // Releases blocks that no token after the first num_computed_tokens attends to.
  void remove_skipped_blocks(KvBlocks& blocks, std::uint32_t num_computed_tokens);

  // Forgets the hashes of these blocks, in this order, held or not. Ids must be < num_blocks.
  void evict_blocks(std::span<const BlockId> blocks);

  // Forgets all block hashes. Returns false and changes nothing while any block is held.
  bool reset_prefix_cache();

  // vLLM's get_num_common_prefix_blocks. Writes one number per group: the leading blocks of a running sequence that every sequence with
  // blocks shares. 0 if the group's kind does not support it.
  void common_prefix_blocks(KvBlocks& running, std::span<std::uint32_t> num_blocks);

  // Appends the full-attention blocks that were taken since the last call; the worker zeroes them. Only models with mamba layers have any.
  void take_new_block_ids(std::vector<BlockId>& out);
  // Moves the events since the last call to the end of `out`.
  void take_events(std::vector<KvEvent>& out);
  // vLLM's make_prefix_cache_stats. Returns the counts since the last call.
  PrefixCacheStats take_prefix_cache_stats();

  // Residency of sampled blocks. Its begin() must get the time and the seed of each call first.
  KvResidency& residency() { return pool_.residency(); }
  // Per-block data for a watcher. Its at() must get the time of each call first.
  BlockWatch& block_watch() { return pool_.block_watch(); }
  const std::vector<WatchedBlock>& watch() { return pool_.watch(); }

  // Recomputes reference counts from all existing sequences and checks them, the free queue and the index. Slow.
  void check_invariants(std::span<const KvBlocks* const> sequences) const;
  // Returns the first violated rule, or null if all hold. The sequences' blocks must belong to the pool.
  [[nodiscard]] const Rule* broken_rule(std::span<const KvBlocks* const> sequences) const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [options, pool, coordinator, drops_blocks, num_loaded, stats, deferred_frees, spare] = self;
    form(pool, *coordinator, stats, deferred_frees);
    form.expect(self.has_sound_deferred_frees(), "blocks that are freed later are in the pool");
  }

 private:
  // Freed blocks that a step in flight may still write to.
  struct DeferredFree {
    std::uint64_t due = 0;
    std::vector<BlockId> blocks;  // in the order in which they go back

    template <class Archive, class Self>
    static void fields(Archive& form, Self& self) {
      auto& [due, blocks] = self;
      form(due, blocks);
    }
  };
  [[nodiscard]] bool has_sound_stats() const { return stats_.hits <= stats_.queries && stats_.preempted_hits <= stats_.preempted_queries; }

  [[nodiscard]] bool has_sound_deferred_frees() const;
  [[nodiscard]] std::span<GroupBlockList> lists(KvBlocks& blocks) const;
  [[nodiscard]] std::uint32_t missing(KvBlocks& blocks, const GroupDemand& demand, const KvHit& hit, std::uint32_t num_min_free_blocks,
                                      std::uint32_t num_more = 0, std::uint32_t num_kept = 0);
  void count_lookup(const KvRequest& request, std::uint32_t num_hits);
  void attach(std::span<GroupBlockList> groups, const KvHit& hit, std::int64_t num_local, std::int64_t num_external);
  void cache_up_to(const KvRequest& request, std::int64_t num_tokens);
  void remove_skipped(KvBlocks& blocks, std::int64_t num_computed_tokens);

  KvCacheOptions options_;
  BlockPool pool_;
  std::unique_ptr<KvCoordinator> coordinator_;
  bool drops_blocks_ = false;  // a group releases blocks that its window or its state has passed
  // Used between the two halves of attach(), when all hits are taken before any block for loaded tokens.
  std::vector<std::int64_t> num_loaded_;  // blocks for external tokens, by group, in allocate_slots()
  PrefixCacheStats stats_;
  std::vector<DeferredFree> deferred_frees_, spare_;  // ascending by `due`; `spare_` keeps memory for reuse
};

}  // namespace quire
