#pragma once
// The scheduler half of an offloading connector. It stores computed blocks in a lower tier, and loads them for prompts that begin with
// them. Decisions equal vLLM's OffloadingConnectorScheduler over its CPUOffloadingManager (v0.19.0): the same matches, loads and stores,
// with the same blocks and slots, in the same steps and order.
//
// A store that a step decides is a transfer of the next plan, when that step's keys and values exist; vLLM's worker delays it equally. When
// a request is preempted, vLLM's worker waits for its stores, because others may write to its blocks. Here the plan that writes to such a
// block names the store as a fence. In both cases the blocks can be loaded from then on. In vLLM a failed transfer stops the program, and a
// reset does nothing. Here a block that could not be stored is not kept, a block that could not be loaded is a miss and is dropped, and a
// reset drops all blocks.
//
// vLLM's connector refuses several cache groups. Here groups of full attention, sliding windows and states work together: the block of each
// group has a separate key, and a load takes from each group what the prefix cache would need (group_windows.h). Window blocks are stored
// as they fill, too, so that a prompt may diverge from another one anywhere. A request that misses a block of its load waits like a new
// one.
//
// Requirements on the transport: transfers of the same place take effect in the order in which they begin. A load from a place fails if the
// last store to it failed.
//
// A slot has `blocks_per_key` places: place = slot * blocks_per_key + index in the offloaded block. Transfers carry these numbers, or
// numbers that a TierSlots assigns. One thread.
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
  // Returns an error if the cache cannot be offloaded. It supports full attention, windows and states of mamba layers with blocks of one
  // size, but not chunks or context parallelism.
  static Result<void> check(const CoreConfig& config);
  // `bytes_per_block`: bytes of a cache block in all layers of its group, over all ranks, for the largest group. Errors name the field: an
  // option is out of range, or the cache cannot be offloaded. `tier_slots`, if given, must outlive the connector. Its tier may hold blocks
  // from an earlier run, of the cache's block size, and restore() must report each slot.
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
  // Ignores a transfer that it does not know.
  void completed(const TransferCompletion& completion) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void forget_blocks(const RequestView& request) override;
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override;
  void sent(RequestId request) override;
  void step_output() override {}
  // Drops all blocks. Blocks in transfer leave the tier when the transfer is over, and are not found until then.
  bool reset() override;

  // Called between two calls of the core; see OffloadLedger::restore(). After a reset no key is taken.
  void restore(OffloadSlot slot, const OffloadKey* key);
  // Called between two calls of the core. Transfers in flight continue.
  void serve(const TierService& service) { service_ = service; }
  // Called between two calls of the core. A request with more blocks than this, over all groups, is not stored here but left to a lower
  // tier.
  void set_max_request_blocks(std::uint32_t num_blocks) { max_request_blocks_ = num_blocks; }
  // Called on that lower tier, between two calls of the core. It stores only what `upper` leaves to it. `upper` must outlive it.
  void set_upper_tier(const OffloadConnector& upper) { upper_ = &upper; }
  // Called between two calls of the core. From then on a load begins only if it takes no longer than computing its tokens. Loads in flight
  // count as queued before it. All loads begin while one of the costs is unknown.
  void set_costs(const TierCosts& costs) { costs_ = costs; }

  // For code that moves blocks between this tier and another one, between two calls of the core (offload_moves.cpp; blocks_per_key() is 1).
  // Appends at most `most` keys that are likely to be evicted next.
  void append_next_victims(std::size_t most, std::vector<OffloadKey>& keys) const { ledger_->append_next_victims(most, keys); }
  // Keeps the key's block in place until release() and returns the number that transfers carry for the place. nullopt: the tier does not
  // have the block.
  std::optional<std::uint64_t> hold(const OffloadKey& key);
  void release(const OffloadKey& key);
  // Returns a slot for a block that comes from another tier. nullopt: the block is here already, or there is no room. adopted() must
  // follow.
  std::optional<OffloadSlot> adopt(const OffloadKey& key);
  void adopted(const OffloadKey& key, bool is_stored);

  // For a tier that others store to and evict from as well, so that its content must be queried (offload_moves.cpp; blocks_per_key() is 1).
  // Appends the keys that match() would need, of all groups.
  void append_match_keys(const RequestView& request, std::uint32_t num_local_tokens, std::vector<OffloadKey>& keys);
  // Appends the keys of all full blocks of the request.
  void append_block_keys(const RequestView& request, std::vector<OffloadKey>& keys);
  // Apply the answer to a query, before match() or between two calls of the core. A key that exists is found from now on if there is room
  // for it; a missing key is removed. Keys in transfer do not change.
  void on_query_hit(const OffloadKey& key);
  void on_query_miss(const OffloadKey& key);

  // Stops the program if transfers and counters disagree, here or in the ledger. Slow.
  void check_invariants() const;
  [[nodiscard]] const OffloadLedger& ledger() const { return *ledger_; }
  void clear_events() { ledger_->clear_events(); }
  [[nodiscard]] const OffloadCounters& counters() const { return counters_; }
  // Returns how many offloaded blocks found no room when they were full. Each is counted once, however often it is tried again.
  [[nodiscard]] std::uint64_t num_left_out() const { return num_left_out_; }
  [[nodiscard]] std::uint32_t blocks_per_key() const { return blocks_per_key_; }
  // Returns how many requests and transfers it remembers; 0 when all are over.
  [[nodiscard]] std::size_t num_tracked() const { return tracked_.size() + moving_.size() + loads_.size() + decided_.size() + due_.size(); }

 private:
  // State of a request. Its blocks are stored in order: `next_stored` is the first undecided one, in offloaded blocks.
  struct TrackedRequest {
    std::uint32_t next_stored = 0;
    bool stores = false;  // a store was decided: the request's blocks stay until it is over
    bool has_ended = false;
    std::uint32_t num_loads = 0;                 // loads that are not over
    std::uint32_t num_loaded_tokens = 0;         // tokens of these loads, as far as is known
    std::optional<bool> should_store = {};       // whether the request is stored at all; nullopt: undecided
    std::uint32_t end_counted_without_slot = 0;  // offloaded blocks before it that had no room were counted
    std::vector<OffloadKey> storing;
  };
  // A transfer from its decision to its end: first in loads_ or decided_ (stores, then in due_ with the next plan), then by its id in
  // moving_.
  struct PendingTransfer {
    RequestId request;
    TransferDirection direction;
    std::uint32_t group = 0;
    std::uint32_t first_key = 0;  // for a load: index of keys[0] in the request, in offloaded blocks
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
  // Return the keys of the request's offloaded blocks from `begin` to `end`: of all groups, block by block, or of one group. Valid until
  // the next call.
  std::span<const OffloadKey> keys_of(const RequestView& request, std::size_t begin, std::size_t end);
  std::span<const OffloadKey> keys_of(const RequestView& request, std::uint32_t group, std::size_t begin, std::size_t end);
  // Returns the keys of the blocks that each group holds, in the same order; `queried_` then lists these blocks.
  std::span<const OffloadKey> keys_held(const RequestView& request, std::size_t begin, std::size_t end);
  // Returns how many offloaded blocks of the prompt can be loaded at most.
  [[nodiscard]] std::size_t num_loadable(const RequestView& request) const;
  // Returns the offloaded block up to which the prompt can be loaded. `keys` are the keys from `begin` to `end`, and the ledger has the
  // first num_first of them.
  std::size_t end_of_hit(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end, std::size_t num_first);
  [[nodiscard]] bool is_being_loaded(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end) const;
  [[nodiscard]] bool computes_faster(std::uint32_t num_local_tokens, std::uint32_t num_tokens) const;
  [[nodiscard]] bool is_busy_storing(std::size_t num_blocks) const;
  void plan_load(const RequestView& request, std::uint32_t group, std::span<const BlockId> blocks, std::uint32_t first, std::uint32_t end);
  void plan_store(const ScheduledRequest& scheduled);
  // leaves() returns whether the request is larger than max_request_blocks_, is_left_to_upper_tier() whether another tier stores it.
  [[nodiscard]] bool leaves(const RequestView& request) const;
  [[nodiscard]] bool is_left_to_upper_tier(const RequestView& request) const;
  // Returns whether the request is stored. `num_blocks` of its offloaded blocks could be stored now, each with a key per group.
  bool takes(TrackedRequest& tracked, std::size_t num_blocks);
  // Decides on the stores of the request's undecided offloaded blocks before `end`.
  void decide_stores(const RequestView& request, TrackedRequest& tracked, std::uint32_t end);
  // Returns up to which offloaded block before `end` a request can have slots at all.
  [[nodiscard]] std::uint32_t end_of_storable(std::uint32_t end) const;
  // Stores the blocks that find room. Returns the first offloaded block that must be tried again.
  std::uint32_t store_before(const RequestView& request, TrackedRequest& tracked, std::uint32_t end);
  void count_not_stored(const RequestView& request, TrackedRequest& tracked, std::uint32_t end);
  void store_rest(const RequestView& request, TrackedRequest& tracked);
  void add_stores(RequestId request, const PreparedStore& store, TrackedRequest& tracked);
  PendingTransfer& store_of(RequestId request, std::uint32_t group, std::size_t first_decided);
  void end_stores(std::vector<OffloadKey>& keys);
  void end_store(const PendingTransfer& store);
  bool begin(PendingTransfer& moving, TransferList& transfers);
  [[nodiscard]] bool holds_blocks(const PendingTransfer& moving) const;
  // Releases the keys of a load. Returns the record of its request.
  TrackedRequest& end_transfer_of(const PendingTransfer& load);
  void end_load(const PendingTransfer& load, const TransferCompletion& completion);
  void drop_invalid(const PendingTransfer& load, std::span<const BlockId> bad_blocks, TrackedRequest& tracked);
  void fail_store(const PendingTransfer& store);
  // Removes the key from the tier, now or when its transfer is over.
  void drop(const OffloadKey& key);
  void forget_if_done(RequestId request);
  void check_moving(const PendingTransfer& moving) const;

  struct QueriedKey {
    std::uint32_t group;
    std::size_t index;  // index of the offloaded block in the request
  };

  std::unique_ptr<OffloadLedger> ledger_;
  GroupWindows windows_;
  const Core* core_ = nullptr;
  std::uint32_t block_size_;  // tokens
  std::uint32_t blocks_per_key_;
  std::uint64_t bytes_per_block_;
  std::uint32_t max_storing_blocks_;
  bool waits_for_loads_;  // for loads of other requests
  bool hit_after_store_completes_, stores_leading_blocks_;
  std::uint32_t max_request_blocks_ = std::numeric_limits<std::uint32_t>::max();  // most blocks of a request that is stored here
  const OffloadConnector* upper_ = nullptr;                                       // null: it stores all requests
  std::optional<ChurnDetector> churn_;
  TierSlots* tier_slots_;               // may be null
  std::vector<std::uint64_t> numbers_;  // by place, if `tier_slots_` is set: numbers that transfers carry
  bool was_reset_ = false;
  TierService service_;
  TierCosts costs_;
  RequestId matched_{};  // request of the last match(), with its num_local_tokens_
  std::uint32_t num_local_tokens_ = 0;
  std::uint32_t num_declined_tokens_ = 0;                        // tokens that it declined to load, because computing them is faster
  std::size_t num_storing_blocks_ = 0, num_loading_blocks_ = 0;  // in transfer or decided
  std::unordered_map<std::uint64_t, TrackedRequest> tracked_;    // by request
  // Keys that are being loaded for any request. Other requests that need one of them wait (unless OffloadConnectorOptions::join_loads), or
  // find it in the cache afterwards.
  KeySet being_loaded_;
  KeySet dropped_after_transfer_;                              // keys in transfer that are dropped afterwards
  std::vector<PendingTransfer> loads_;                         // loads of this plan
  std::vector<PendingTransfer> decided_;                       // stores decided with this plan, for the next one
  std::vector<PendingTransfer> due_;                           // stores that begin with this plan
  std::unordered_map<std::uint64_t, PendingTransfer> moving_;  // by transfer id
  OffloadCounters counters_;
  std::uint64_t num_left_out_ = 0;
  // Scratch of keys_of() and keys_held(), which keeps its memory.
  std::vector<OffloadKey> keys_, kept_;
  std::vector<QueriedKey> queried_;                     // parallel to `keys_`, after keys_held()
  std::vector<std::span<const BlockId>> block_tables_;  // block tables by group, after keys_held()
};

}  // namespace quire
