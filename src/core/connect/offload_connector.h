#pragma once
// The scheduler side of an offloading connector. The connector stores computed blocks in a lower tier, and loads the blocks for prompts
// that begin with their tokens. Decisions equal vLLM's OffloadingConnectorScheduler with its CPUOffloadingManager (v0.19.0): the same
// matches, loads and stores, with the same blocks and slots, in the same steps and order.
//
// A store that a step decides is a transfer of the next plan, because the keys and values exist only after the step. vLLM's worker delays
// it in the same way. When a request is preempted, vLLM's worker waits for its stores, because other requests may write to its blocks. Here
// the plan that writes to such a block lists the store as a fence. In both cases the blocks can be loaded from then on.
//
// Failures differ from vLLM, where a failed transfer stops the program and a reset does nothing. Here a block that could not be stored is
// not kept, a block that could not be loaded is a miss and is dropped, and a reset drops all blocks.
//
// vLLM's connector refuses several cache groups. Here groups of full attention, sliding windows and states may be combined: the block of
// each group has a separate key, and a load takes from each group what the prefix cache would need (group_windows.h). Window blocks are
// stored when they fill, so that another prompt may diverge at any block. A request waits like a new request if a block of its load is
// missing.
//
// Requirements on the transport: transfers of the same place take effect in the order in which they begin. A load from a place fails if the
// last store to this place failed.
//
// Each slot of the ledger has `blocks_per_key` places, one per cache block: place = slot * blocks_per_key + index in the offloaded block.
// Transfer::places contains these numbers, or the numbers that a TierSlots assigns to them. Not thread-safe.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "core/connect/churn_detector.h"
#include "core/connect/group_windows.h"
#include "core/connect/tier_slots.h"
#include "core/offload/offload_ledger.h"
#include "quire/base/core_config.h"
#include "quire/connector.h"
#include "quire/offload.h"

namespace quire {

struct ScheduledRequest;

class OffloadConnector final : public Connector {
 public:
  // Returns an error if the cache cannot be offloaded. Supported are full attention, sliding windows and states of mamba layers with blocks
  // of equal size, but not chunked attention or context parallelism.
  static Result<void> check(const CoreConfig& config);
  // `bytes_per_block` is the size of a cache block in all layers of its group, over all ranks, for the largest group. Returns an error that
  // names the field if an option is out of range or the cache cannot be offloaded. `tier_slots`, if given, must outlive the connector. The
  // tier may then hold blocks of an earlier run, of the cache's block size, so restore() must be called for each slot.
  static Result<std::unique_ptr<OffloadConnector>> create(const OffloadConnectorOptions& options, const CoreConfig& config,
                                                          std::uint64_t bytes_per_block, TierSlots* tier_slots = nullptr);

  void bind(const Core& core) override { core_ = &core; }
  [[nodiscard]] bool supports_groups() const override { return true; }
  [[nodiscard]] bool supports_states() const override { return true; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override;
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  void planned(const StepPlan& plan) override;
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  // Ignores unknown transfers.
  void completed(const TransferCompletion& completion) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void forget_blocks(const RequestView& request) override;
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override;
  void sent(RequestId request) override;
  void step_output() override {}
  // Drops all blocks. Blocks in transfer are not found from now on, and leave the tier when their transfers have ended.
  bool reset() override;

  // Called between two calls of the core; see OffloadLedger::restore(). After a reset, no key is restored.
  void restore(OffloadSlot slot, const OffloadKey* key);
  // Sets which transfers the tier supports. Called between two calls of the core. Transfers in flight continue.
  void serve(const TierService& service) { service_ = service; }
  // Called between two calls of the core. A request with more offloaded blocks than this, over all groups, is not stored here; a lower
  // tier may store it.
  void set_max_request_blocks(std::uint32_t num_blocks) { max_request_blocks_ = num_blocks; }
  // Called on the lower tier between two calls of the core. This tier then stores only requests that are too large for `upper`, which must
  // outlive this connector.
  void set_upper_tier(const OffloadConnector& upper) { upper_ = &upper; }
  // Called between two calls of the core. From then on a load begins only if it takes at most as long as computing its tokens. Loads in
  // flight count as queued before it. While a cost is unknown, all loads begin.
  void set_costs(const TierCosts& costs) { costs_ = costs; }

  // The following functions are for code that moves blocks between this tier and another one, between two calls of the core
  // (offload_moves.cpp; blocks_per_key() is 1). Appends at most `most` keys that are likely to be evicted next.
  void append_next_victims(std::size_t most, std::vector<OffloadKey>& keys) const { ledger_->append_next_victims(most, keys); }
  // Pins the key's block until release() and returns its number for Transfer::places. Returns nullopt if the tier does not have the block.
  std::optional<std::uint64_t> hold(const OffloadKey& key);
  void release(const OffloadKey& key);
  // Returns a slot for a block that comes from another tier. Returns nullopt if the block is already here or no slot can be freed.
  // adopted() must follow.
  std::optional<OffloadSlot> adopt(const OffloadKey& key);
  void adopted(const OffloadKey& key, bool is_stored);

  // For a tier whose content must be queried, because others also store to it and evict from it (offload_moves.cpp; blocks_per_key() is 1).
  // Appends the keys that match() would need, of all groups.
  void append_match_keys(const RequestView& request, std::uint32_t num_local_tokens, std::vector<OffloadKey>& keys);
  // Appends the keys of all full blocks of the request.
  void append_block_keys(const RequestView& request, std::vector<OffloadKey>& keys);
  // Apply the answer to a query, before match() or between two calls of the core. A key that exists can be found from now on, if a slot can
  // be assigned to it; a missing key is removed. Keys in transfer do not change.
  void on_query_hit(const OffloadKey& key);
  void on_query_miss(const OffloadKey& key);

  // Stops the program if transfers and counters are inconsistent, here or in the ledger. Slow.
  void check_invariants() const;
  [[nodiscard]] const OffloadLedger& ledger() const { return *ledger_; }
  void clear_events() { ledger_->clear_events(); }
  [[nodiscard]] const OffloadCounters& counters() const { return counters_; }
  // Returns how many offloaded blocks had no room in the tier when they were full. Each block is counted once, however often its store is
  // tried again.
  [[nodiscard]] std::uint64_t num_left_out() const { return num_left_out_; }
  [[nodiscard]] std::uint32_t blocks_per_key() const { return blocks_per_key_; }
  // Returns the number of records of requests and transfers; 0 when all have ended.
  [[nodiscard]] std::size_t num_tracked() const { return tracked_.size() + moving_.size() + loads_.size() + decided_.size() + due_.size(); }

 private:
  // The record of a request. Its blocks are stored in order: `next_stored` is the first block without a decision, in offloaded blocks.
  struct TrackedRequest {
    std::uint32_t next_stored = 0;
    bool stores = false;  // a store was decided: the request's blocks are kept until the store has ended
    bool has_ended = false;
    std::uint32_t num_loads = 0;                 // number of loads that have not ended
    std::uint32_t num_loaded_tokens = 0;         // tokens of these loads; reduced when blocks fail to load
    std::optional<bool> should_store = {};       // whether the request is stored at all; nullopt if not decided yet
    std::uint32_t end_counted_without_slot = 0;  // blocks before this one are already counted as without room
    std::vector<OffloadKey> storing;
  };
  // A transfer from its decision to its end. A load is first in loads_. A store is first in decided_, and in due_ from the end of
  // plan_transfers() on. A transfer that has begun is in moving_ under its id.
  struct PendingTransfer {
    RequestId request;
    TransferDirection direction;
    std::uint32_t group = 0;
    std::uint32_t first_key = 0;  // for a load: index of keys[0] among the request's offloaded blocks
    bool was_refused = false;     // the limit of open transfers was reached
    std::vector<OffloadKey> keys;
    std::vector<BlockId> blocks;
    // Parallel to `blocks`.
    std::vector<std::uint32_t> indices = {};  // in the request's block table
    std::vector<std::uint64_t> places;
  };
  struct KeyHash {
    std::size_t operator()(const OffloadKey& key) const { return key.prefix() ^ key.group; }
  };
  using KeySet = std::unordered_set<OffloadKey, KeyHash>;

  OffloadConnector(std::unique_ptr<OffloadLedger> ledger, GroupWindows windows, const OffloadConnectorOptions& options,
                   const CoreConfig& config, std::uint32_t blocks_per_key, std::uint64_t bytes_per_block, TierSlots* tier_slots);
  [[nodiscard]] std::uint64_t number_of(std::uint64_t place) const {
    QUIRE_CHECK(tier_slots_ == nullptr || place < numbers_.size(), "the slot has a number");
    return tier_slots_ == nullptr ? place : numbers_[place];
  }
  std::uint64_t assign(std::uint64_t place, const OffloadKey& key);
  void add_key(const RequestView& request, std::uint32_t group, std::size_t index);
  // Return the keys of the request's offloaded blocks from `begin` to `end`: for all groups, block by block, or for one group. Valid until
  // the next call.
  std::span<const OffloadKey> keys_of(const RequestView& request, std::size_t begin, std::size_t end);
  std::span<const OffloadKey> keys_of(const RequestView& request, std::uint32_t group, std::size_t begin, std::size_t end);
  // Returns the keys of the blocks that each group holds, in the same order. `queried_` then lists these blocks.
  std::span<const OffloadKey> keys_held(const RequestView& request, std::size_t begin, std::size_t end);
  // Returns the maximum number of offloaded blocks of the prompt that can be loaded.
  [[nodiscard]] std::size_t num_loadable(const RequestView& request) const;
  // Returns the end of the blocks that can be loaded, in offloaded blocks. `keys` are the keys from `begin` to `end`; the first num_first
  // of them are known to be in the ledger.
  std::size_t end_of_hit(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end, std::size_t num_first);
  [[nodiscard]] bool is_being_loaded(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end) const;
  [[nodiscard]] bool computes_faster(std::uint32_t num_local_tokens, std::uint32_t num_tokens) const;
  [[nodiscard]] bool is_busy_storing(std::size_t num_blocks) const;
  void plan_load(const RequestView& request, std::uint32_t group, std::span<const BlockId> blocks, std::uint32_t first, std::uint32_t end);
  void plan_store(const ScheduledRequest& scheduled);
  // leaves() returns whether the request is larger than max_request_blocks_. is_left_to_upper_tier() returns whether the request is not
  // stored here but in another tier.
  [[nodiscard]] bool leaves(const RequestView& request) const;
  [[nodiscard]] bool is_left_to_upper_tier(const RequestView& request) const;
  // Returns whether the request is stored. `num_blocks` is the number of its offloaded blocks that could be stored now, each with one key
  // per group.
  bool takes(TrackedRequest& tracked, std::size_t num_blocks);
  // Decides on the stores of the request's blocks without a decision before `end`.
  void decide_stores(const RequestView& request, TrackedRequest& tracked, std::uint32_t end);
  // Returns the end of the blocks before `end` for which the tier is large enough, in offloaded blocks.
  [[nodiscard]] std::uint32_t end_of_storable(std::uint32_t end) const;
  // Stores the blocks for which slots can be assigned. Returns the first offloaded block that must be tried again.
  std::uint32_t store_before(const RequestView& request, TrackedRequest& tracked, std::uint32_t end);
  void count_not_stored(const RequestView& request, TrackedRequest& tracked, std::uint32_t end);
  void store_rest(const RequestView& request, TrackedRequest& tracked);
  void add_stores(RequestId request, const PreparedStore& store, TrackedRequest& tracked);
  PendingTransfer& store_of(RequestId request, std::uint32_t group, std::size_t first_decided);
  void end_stores(std::vector<OffloadKey>& keys);
  void end_store(const PendingTransfer& store);
  bool begin(PendingTransfer& moving, TransferList& transfers);
  [[nodiscard]] bool holds_blocks(const PendingTransfer& moving) const;
  // Unpins the keys of a load that has ended. Returns the record of its request.
  TrackedRequest& end_transfer_of(const PendingTransfer& load);
  void end_load(const PendingTransfer& load, const TransferCompletion& completion);
  void drop_invalid(const PendingTransfer& load, std::span<const BlockId> bad_blocks, TrackedRequest& tracked);
  void fail_store(const PendingTransfer& store);
  // Removes the key from the tier, now or when its transfer has ended.
  void drop(const OffloadKey& key);
  void forget_if_done(RequestId request);
  void check_moving(const PendingTransfer& moving) const;

  struct QueriedKey {
    std::uint32_t group;
    std::size_t index;  // index among the request's offloaded blocks
  };

  std::unique_ptr<OffloadLedger> ledger_;
  GroupWindows windows_;
  const Core* core_ = nullptr;
  std::uint32_t block_size_;  // in tokens
  std::uint32_t blocks_per_key_;
  std::uint64_t bytes_per_block_;
  std::uint32_t max_storing_blocks_;
  bool waits_for_loads_;  // whether a request waits for loads of the same keys by other requests
  bool hit_after_store_completes_, stores_leading_blocks_;
  std::uint32_t max_request_blocks_ = std::numeric_limits<std::uint32_t>::max();  // a request with more blocks is not stored here
  const OffloadConnector* upper_ = nullptr;                                       // null: requests of all sizes are stored here
  std::optional<ChurnDetector> churn_;
  TierSlots* tier_slots_;               // may be null
  std::vector<std::uint64_t> numbers_;  // if `tier_slots_` is set: the number for Transfer::places, by place
  bool was_reset_ = false;
  TierService service_;
  TierCosts costs_;
  RequestId matched_{};  // request of the last match(), to which num_local_tokens_ belongs
  std::uint32_t num_local_tokens_ = 0;
  std::uint32_t num_declined_tokens_ = 0;                        // tokens that match() did not load, because computing them is faster
  std::size_t num_storing_blocks_ = 0, num_loading_blocks_ = 0;  // number of blocks in transfers that are decided or in flight
  std::unordered_map<std::uint64_t, TrackedRequest> tracked_;    // by request
  // Keys that are being loaded for any request. A request that needs one of them waits and then finds it in the cache, unless
  // OffloadConnectorOptions::join_loads is set.
  KeySet being_loaded_;
  KeySet dropped_after_transfer_;                              // keys in transfer that leave the tier when the transfer has ended
  std::vector<PendingTransfer> loads_;                         // loads of this plan
  std::vector<PendingTransfer> decided_;                       // stores decided with this plan, which begin with the next plan
  std::vector<PendingTransfer> due_;                           // stores that begin with the next call of plan_transfers()
  std::unordered_map<std::uint64_t, PendingTransfer> moving_;  // by transfer id
  OffloadCounters counters_;
  std::uint64_t num_left_out_ = 0;
  // Scratch memory of keys_of() and keys_held().
  std::vector<OffloadKey> keys_, kept_;
  std::vector<QueriedKey> queried_;                     // parallel to `keys_`, after keys_held()
  std::vector<std::span<const BlockId>> block_tables_;  // by group, after keys_held()
};

}  // namespace quire
