#pragma once
// Blocks for requests: looks up cached prefixes in every cache group, allocates room for the tokens of a step, makes full blocks findable,
// takes back what a window has passed, and frees. The verbs, their order and their effects are those of vLLM V1's KVCacheManager (v0.19.0)
// and what it drives: block_pool, kv_cache_coordinator, single_type_kv_cache_manager.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/kv/block_pool.h"
#include "core/kv/hash/hash_input.h"
#include "core/kv/kv_blocks.h"
#include "core/kv/kv_request.h"
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
  std::uint32_t max_model_len = 0;    // tokens
  std::uint32_t hash_block_size = 0;  // tokens per hash; with caching, each group's block size is a multiple
  std::uint32_t hash_bytes = 32;      // meaningful bytes of a BlockHash: 16 with xxhash
  std::uint32_t max_step_tokens = 0;  // where positive: windows of a full sequence are reserved for steps of so many tokens
  bool enable_caching = true;
  bool use_eagle = false;
  bool log_stats = false;
  bool enable_events = false;
  bool hits_before_loads = false;     // all groups take their hits before any takes blocks for external tokens
  double residency_sample = 0.0;      // share of allocations whose residency is measured
  bool lifo_free_blocks = false;      // reuse the block freed last first, instead of the least recently used
  bool unnamed_blocks_first = false;  // this and the four below: DecisionRules
  bool hits_count_at_admission = false;
  bool eagle_drops_once = false;
  bool resets_by_group = false;
  bool passed_load_nothing = false;
  std::optional<std::int64_t> retention = {};  // with DecisionRules::sparse_windows: PrefixCacheOptions::retention_interval
  std::uint32_t max_in_flight_tokens = 0;      // with DecisionRules::windows_cap_admission
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;
};

// The one door to the blocks: requests hold KvBlocks, and only this class changes them. One per core, called on its thread. It knows no
// queues and no policies: it says how many blocks lack, and the scheduler decides who gives way.
class KvCacheManager {
 public:
  // What vLLM asserts about configurations; `field` names the option or group.
  static Result<void> check(const KvCacheConfig& config, const KvCacheOptions& options);

  // Options must pass check(). `sink` may be null.
  KvCacheManager(const KvCacheConfig& config, const KvCacheOptions& options, EventSink* sink = nullptr);
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] std::uint32_t num_groups() const;
  // Tokens of a block of the group, context parallelism multiplied in.
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const;
  // 1 - free / all blocks but the null one; blocks set aside for sinks count as used.
  [[nodiscard]] double usage() const { return pool_.usage(); }

  // Room in every group for so many tokens, so that later calls on these blocks allocate no memory.
  void reserve(KvBlocks& blocks, std::uint32_t num_tokens) const;

  // Once per schedule(): what was cached before counts as computed.
  void new_step_starts();

  // get_computed_blocks: the longest cached prefix of at most num_tokens - 1 tokens. Nothing is taken. Counts in the statistics each time,
  // unless caching is off or the request skips it (hits_count_at_admission: count_admission() does).
  [[nodiscard]] KvHit find_prefix(const KvRequest& request);
  // The request was looked up, found so many tokens, and is admitted.
  void count_admission(const KvRequest& request, std::uint32_t num_hits);

  // As find_prefix() of a request of so many tokens with these names, but nothing is counted: how many tokens.
  [[nodiscard]] std::uint32_t count_prefix(std::span<const BlockHash> hashes, std::uint32_t num_tokens);

  // can_fit_full_sequence: the number of blocks that lack for all known tokens (demand: hit, external and encoder tokens); 0: it fits.
  [[nodiscard]] std::uint32_t missing_for_full_sequence(const KvRequest& request, const SlotDemand& demand, const KvHit& hit = {});

  // allocate_slots: attaches the hit, takes blocks for external, new and lookahead tokens, and caches full blocks of known tokens unless
  // delayed. Returns the number of blocks that lack; 0: done. Otherwise nothing is taken, but blocks that a window has passed are free
  // all the same. There must be new or external tokens, and a hit only for a sequence that was freed or never met.
  [[nodiscard]] std::uint32_t allocate_slots(const KvRequest& request, const SlotDemand& demand, const KvHit& hit = {});

  // The child, blank, begins with the blocks of the parent's first num_computed tokens, which are known. They hold them together; before
  // allocate_slots() for tokens that are written to the last one, if it is not full, it becomes the writer's own (KvBlocks::own_copy).
  // `parent_next`: no token before it is written for the parent again. False, and nothing happened: a window has passed blocks that the
  // child needs, or the state behind these tokens has been written over.
  [[nodiscard]] bool fork(const KvRequest& parent, std::uint32_t parent_next, KvBlocks& child, std::uint32_t num_computed);

  // Makes blocks full of the first num_computed_tokens tokens findable. Nothing without caching.
  void cache_blocks(const KvRequest& request, std::uint32_t num_computed_tokens);

  // Gives all blocks back, group by group, last one first. Allowed in any state.
  void free(KvBlocks& blocks);

  // Blocks that a sequence still needs for all its known tokens and so many more.
  [[nodiscard]] std::uint32_t num_to_come(const KvRequest& request, std::uint32_t num_more_tokens);
  // As free(), but they go back with the first free_due() of this number or a greater one; numbers never fall.
  void free_later(KvBlocks& blocks, std::uint64_t due);
  void free_due(std::uint64_t now);

  // Sequences whose blocks lie elsewhere for a while. Of the blocks of the first num_tokens tokens, those that nobody else holds, in all
  // groups or in one.
  [[nodiscard]] std::uint32_t num_own_blocks(const KvBlocks& blocks, std::uint32_t num_tokens) const;
  [[nodiscard]] std::uint32_t num_own_blocks(const KvBlocks& blocks, std::uint32_t num_tokens, std::uint32_t group) const;
  // Gives these away, to the end of `taken`, by group and index, and everything behind these tokens. Until they are back, only free() may
  // be called with the others.
  void take_out(KvBlocks& blocks, std::uint32_t num_tokens, std::vector<TakenBlock>& taken);
  // Takes as many, and says which. Returns the number of blocks that lack; 0: done. Otherwise nothing is taken.
  [[nodiscard]] std::uint32_t bring_back(const KvRequest& request, std::span<TakenBlock> taken, const ReturnDemand& demand);
  // They have their content again: those that had a name have it again.
  void name_again(const KvRequest& request, std::span<const TakenBlock> taken);
  // Besides null blocks.
  [[nodiscard]] static bool holds_any(const KvBlocks& blocks);

  // Gives back what no token after the first num_computed_tokens attends to.
  void remove_skipped_blocks(KvBlocks& blocks, std::uint32_t num_computed_tokens);

  // Forgets these blocks' names, in this order, held or not. They must be < num_blocks.
  void evict_blocks(std::span<const BlockId> blocks);

  // Forgets all names. False, and nothing happens, while any block is held.
  bool reset_prefix_cache();

  // get_num_common_prefix_blocks: leading blocks of a running sequence that every sequence with blocks shares, into one number per group
  // (0 where the group's kind has no such notion).
  void common_prefix_blocks(KvBlocks& running, std::span<std::uint32_t> num_blocks);

  // Appends the full-attention blocks taken since the last call: the worker zeroes them. Only models with mamba layers have any.
  void take_new_block_ids(std::vector<BlockId>& out);
  // Moves the events since the last call to the end of `out`.
  void take_events(std::vector<KvEvent>& out);
  // make_prefix_cache_stats: counted since the last call.
  PrefixCacheStats take_prefix_cache_stats();

  // Residency of sampled blocks; it takes the time and the seed of each call before anything else.
  KvResidency& residency() { return pool_.residency(); }
  // What a watcher is shown of blocks; the same.
  ShownBlocks& shown() { return pool_.shown(); }
  const std::vector<WatchedBlock>& watch() { return pool_.watch(); }

  // Recomputes reference counts from all sequences there are and checks them, the free queue and the index. Slow.
  void check_invariants(std::span<const KvBlocks* const> sequences) const;
  // The first rule that does not hold; null: all do. The sequences' blocks are of the pool.
  [[nodiscard]] const Rule* broken_rule(std::span<const KvBlocks* const> sequences) const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [options, pool, coordinator, drops_blocks, num_loaded, stats, leaving, spare] = self;
    form(pool, *coordinator, stats, leaving);
    form.expect(self.is_leaving_sound(), "blocks are of the pool");
  }

 private:
  // Freed, but a step may write to them still.
  struct Leaving {
    std::uint64_t due = 0;
    std::vector<BlockId> blocks;  // in the order in which they go back

    template <class Form, class Self>
    static void fields(Form& form, Self& self) {
      auto& [due, blocks] = self;
      form(due, blocks);
    }
  };
  [[nodiscard]] bool has_sound_stats() const { return stats_.hits <= stats_.queries && stats_.preempted_hits <= stats_.preempted_queries; }

  [[nodiscard]] bool is_leaving_sound() const;
  [[nodiscard]] std::span<GroupBlockList> lists(KvBlocks& blocks) const;
  [[nodiscard]] std::uint32_t missing(KvBlocks& blocks, const GroupDemand& demand, const KvHit& hit, std::uint32_t num_left_free,
                                      std::uint32_t num_more = 0, std::uint32_t num_kept = 0);
  void count_lookup(const KvRequest& request, std::uint32_t num_hits);
  void attach(std::span<GroupBlockList> groups, const KvHit& hit, std::int64_t num_local, std::int64_t num_external);
  void cache_up_to(const KvRequest& request, std::int64_t num_tokens);
  void remove_skipped(KvBlocks& blocks, std::int64_t num_computed_tokens);

  KvCacheOptions options_;
  BlockPool pool_;
  std::unique_ptr<KvCoordinator> coordinator_;
  bool drops_blocks_ = false;  // a group gives back what its window or its state has passed
  // Between the two halves of attach(), when all hits are taken before any block for what is loaded.
  std::vector<std::int64_t> num_loaded_;  // blocks for external tokens, by group, in allocate_slots()
  PrefixCacheStats stats_;
  std::vector<Leaving> leaving_, spare_;  // by rising `due`; their memory is used again
};

}  // namespace quire
