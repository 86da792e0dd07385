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
  std::uint32_t hash_bytes = 32;      // number of meaningful bytes of a BlockHash: 16 with xxhash
  // If positive, a full sequence reserves for its windows only as many blocks as steps of this many tokens need.
  std::uint32_t max_step_tokens = 0;
  bool enable_caching = true;
  bool use_eagle = false;
  bool log_stats = false;
  bool enable_events = false;
  double residency_sample = 0.0;                  // share of allocated blocks whose residency is measured
  bool lifo_free_blocks = false;                  // reuse the most recently freed block first, not the least recently used one
  double slru_share = 0.0, retained_share = 0.0;  // PrefixCacheOptions
  DecisionRules rules = {};
  std::optional<std::int64_t> retention = {};  // with DecisionRules::caches_windows_sparsely: PrefixCacheOptions::retention_interval
  std::uint32_t max_in_flight_tokens = 0;      // with DecisionRules::admission_capped_by_window
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;
};

// The only class that changes the blocks of requests (KvBlocks). One per core, called on the core's thread. The manager does not know
// queues or policies: it returns how many blocks are missing, and the scheduler decides which request is preempted.
class KvCacheManager {
 public:
  // Returns an error if the configuration violates an assertion of vLLM. The error's field names the option or the group.
  static Result<void> check(const KvCacheConfig& config, const KvCacheOptions& options);

  // The configuration and the options must pass check(). `sink` may be null.
  KvCacheManager(const KvCacheConfig& config, const KvCacheOptions& options, EventSink* sink = nullptr);
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] std::uint32_t num_groups() const;
  // Returns the tokens per block of the group, multiplied by context parallelism.
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const;
  // Returns the share of blocks that are not free, without the null block. Blocks reserved for sinks count as used.
  [[nodiscard]] double usage() const { return pool_.usage(); }

  // Reserves memory in every group's list for `num_tokens` tokens, so that later calls on these blocks do not allocate memory.
  void reserve(KvBlocks& blocks, std::uint32_t num_tokens) const;

  // Called once per schedule(). States that were cached in earlier steps count as computed from now on, and blocks that were retained until
  // `now`, in seconds, no longer are.
  void new_step_starts(double now);

  // vLLM's get_computed_blocks. Returns the longest cached prefix of at most num_tokens - 1 tokens. Takes no blocks. The look-up counts in
  // the statistics if `counts_now` is true and counts_hits_at_admission is off. It never counts if caching is off or the request skips the
  // cache.
  [[nodiscard]] KvHit find_prefix(const KvRequest& request, bool counts_now = true);
  // Counts the look-up of a request that is now admitted with `num_hits` cached tokens.
  void count_admission(const KvRequest& request, std::uint32_t num_hits);

  // Returns how many tokens find_prefix() would find for a request with these hashes and `num_tokens` tokens. Does not change the
  // statistics.
  [[nodiscard]] std::uint32_t count_prefix(std::span<const BlockHash> hashes, std::uint32_t num_tokens);

  // vLLM's can_fit_full_sequence. Returns how many blocks are missing for all known tokens; 0 if they fit. `demand` contains the hit,
  // external and encoder tokens.
  [[nodiscard]] std::uint32_t missing_for_full_sequence(const KvRequest& request, const SlotDemand& demand, const KvHit& hit = {});

  // vLLM's allocate_slots. Attaches the hit, takes blocks for external, new and lookahead tokens, and caches full blocks of known tokens
  // unless `demand` delays caching. Returns the number of missing blocks, or 0 on success. On failure no block is taken, but blocks that a
  // window has passed are released. At least one token must be new or external. A hit is allowed only for a sequence that has no blocks.
  [[nodiscard]] std::uint32_t allocate_slots(const KvRequest& request, const SlotDemand& demand, const KvHit& hit = {});

  // Shares the blocks of the parent's first num_computed tokens, which must be known, with the child, which must be blank. If the last
  // shared block is not full, allocate_slots() makes the block private to the sequence that writes to it (KvBlocks::copy_on_write_block).
  // The parent must not write tokens before `parent_next` again. Returns false and changes nothing if a window has passed blocks that the
  // child needs, or if the state after these tokens was overwritten.
  [[nodiscard]] bool fork(const KvRequest& parent, std::uint32_t parent_next, KvBlocks& child, std::uint32_t num_computed);

  // Caches the full blocks of the first num_computed_tokens tokens. Does nothing without caching.
  void cache_blocks(const KvRequest& request, std::uint32_t num_computed_tokens);

  // Keeps these blocks after their release until this time, in seconds (BlockPool::retain()).
  void retain(const KvBlocks& blocks, double until);
  // Releases all blocks, group by group, the last block first. Allowed in any state.
  void free(KvBlocks& blocks);

  // Returns how many blocks a sequence still needs for its known tokens and `num_more_tokens` more. With `slides` (and
  // KvCacheOptions::max_step_tokens), a sliding-window group counts only the blocks that it holds at the same time; otherwise it counts the
  // blocks of all these tokens, as in vLLM.
  [[nodiscard]] std::uint32_t num_future_blocks(const KvRequest& request, std::uint32_t num_more_tokens, bool slides = false);
  // free_later() removes all blocks from the sequence, but the blocks enter the free queue only at the first free_due() with `now` >=
  // `due`, the last block of the last group first. `due` must not decrease from call to call.
  void free_later(KvBlocks& blocks, std::uint64_t due);
  void free_due(std::uint64_t now);

  // For swapping. Returns how many blocks of the first num_tokens tokens are held by this sequence only, in all groups or in one group.
  [[nodiscard]] std::uint32_t num_exclusive_blocks(const KvBlocks& blocks, std::uint32_t num_tokens) const;
  [[nodiscard]] std::uint32_t num_exclusive_blocks(const KvBlocks& blocks, std::uint32_t num_tokens, std::uint32_t group) const;
  // Releases the blocks that num_exclusive_blocks() counts and appends them to `taken`, by group and index. Also releases every block after
  // the first num_tokens tokens. Until swap_in(), only free() may be called for the sequence.
  void swap_out(KvBlocks& blocks, std::uint32_t num_tokens, std::vector<SwappedOutBlock>& taken);
  // Allocates a block for each element of `taken` and records the block there. Returns the number of missing blocks, or 0 on success. On
  // failure no block is taken.
  [[nodiscard]] std::uint32_t swap_in(const KvRequest& request, std::span<SwappedOutBlock> taken, const ReturnDemand& demand);
  // Called when the swapped-in blocks have their content again. Blocks that had a hash get it back.
  void restore_hashes(const KvRequest& request, std::span<const SwappedOutBlock> taken);
  // Returns whether the sequence holds a block other than the null block.
  [[nodiscard]] static bool holds_any(const KvBlocks& blocks);

  // Releases blocks that no token after the first num_computed_tokens attends to.
  void remove_skipped_blocks(KvBlocks& blocks, std::uint32_t num_computed_tokens);

  // Removes the hashes of these blocks, in this order, whether held or free. Ids must be < num_blocks.
  void evict_blocks(std::span<const BlockId> blocks);

  // Removes all block hashes. Returns false and changes nothing while any block is held.
  bool reset_prefix_cache();

  // vLLM's get_num_common_prefix_blocks. Writes one number per group: how many leading blocks of a running sequence are shared by all
  // sequences with blocks. Writes 0 for a kind of attention without support for this.
  void common_prefix_blocks(KvBlocks& running, std::span<std::uint32_t> num_blocks);

  // Appends the full-attention blocks that were allocated since the last call; the worker fills them with zeros. Appends none for models
  // without mamba layers.
  void take_new_block_ids(std::vector<BlockId>& out);
  // Moves the events since the last call to the end of `out`.
  void take_events(std::vector<KvEvent>& out);
  // vLLM's make_prefix_cache_stats. Returns the counts since the last call and resets them.
  PrefixCacheStats take_prefix_cache_stats();

  // Residency of sampled blocks. Call its begin() with the time and the seed before each call of the core.
  KvResidency& residency() { return pool_.residency(); }
  // Per-block data for a watcher. Call its at() with the time before each call of the core.
  BlockWatch& block_watch() { return pool_.block_watch(); }
  const std::vector<WatchedBlock>& watch() { return pool_.watch(); }

  // Recomputes the reference counts from all existing sequences, and checks the counts, the free queue and the index. Slow.
  void check_invariants(std::span<const KvBlocks* const> sequences) const;
  // Returns the first violated rule, or null if all hold. The sequences' blocks must belong to the pool.
  [[nodiscard]] const Rule* broken_rule(std::span<const KvBlocks* const> sequences) const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [options, pool, coordinator, drops_blocks, num_loaded, stats, deferred_frees, spare] = self;
    form(pool, *coordinator, stats, deferred_frees);
    form.expect(self.has_sound_deferred_frees(), "blocks that are freed later are in the pool");
  }

 private:
  // Freed blocks to which a step in flight may still write.
  struct DeferredFree {
    std::uint64_t due = 0;
    std::vector<BlockId> blocks;  // in the order in which they enter the free queue

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
  bool drops_blocks_ = false;             // whether a group releases blocks that its window or its state has passed
  std::vector<std::int64_t> num_loaded_;  // blocks for external tokens, by group; used within attach()
  PrefixCacheStats stats_;
  std::vector<DeferredFree> deferred_frees_, spare_;  // ascending by `due`; `spare_` keeps memory for reuse
};

}  // namespace quire
