#pragma once
// The scheduler half of an offloading connector: computed blocks are stored in a lower tier, and prompts that begin with them are loaded
// from it. Decisions are those of vLLM's OffloadingConnectorScheduler over its CPUOffloadingManager (v0.19.0): the same matches, loads and
// stores, with the same blocks and slots, in the same steps and order.
//
// A store that a step decides is a transfer of the next plan, when that step's keys and values are there; vLLM's worker puts it off as
// long. When a request is preempted, vLLM's worker waits for its stores, since others may write to its blocks; here the plan that writes to
// such a block names the store as a fence. In both the blocks can be loaded from then on. In vLLM a failed transfer stops the program, and
// a reset does nothing; here a block that could not be stored is not kept, one that could not be loaded is a miss and is dropped, and a
// reset drops all.
//
// vLLM's connector refuses several cache groups. Here groups of full attention, of sliding windows and of states go together: a block of
// each has a key of its own, and a load takes of each what the prefix cache would ask of it (group_windows.h). Blocks of windows are stored
// as they fill, too, so that a prompt may part from another one anywhere. One that misses a block of its load waits as if new.
//
// What it asks of the transport: transfers that name the same place take effect in the order in which they begin; a load from a place whose
// last store failed fails.
//
// A block has `factor` places: place = slot * factor + index in the offloaded block. Transfers carry these numbers, or what a TierPlaces
// makes of them. One thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "core/connect/churn_gauge.h"
#include "core/connect/group_windows.h"
#include "core/connect/tier_places.h"
#include "core/offload/offload_ledger.h"
#include "quire/base/core_config.h"
#include "quire/connector.h"
#include "quire/offload.h"

namespace quire {

struct ScheduledRequest;

class OffloadConnector final : public Connector {
 public:
  // Whether such a cache can be offloaded: full attention, windows and states of mamba layers, with blocks of one size; no chunks, nor
  // context parallelism.
  static Result<void> check(const CoreConfig& config);
  // `bytes_per_block`: of a block of the cache, in all layers of its group, over all ranks; of the largest group's. Errors name the field:
  // an option out of range, or a cache that cannot be offloaded. `places`, if given, outlives it: a tier that may hold blocks from before,
  // of the cache's block size. restore() tells of each slot then.
  static Result<std::unique_ptr<OffloadConnector>> create(const OffloadConnectorOptions& options, const CoreConfig& config,
                                                          std::uint64_t bytes_per_block, TierPlaces* places = nullptr);

  void bind(const Core& core) override { core_ = &core; }
  [[nodiscard]] bool supports_groups() const override { return true; }
  [[nodiscard]] bool supports_states() const override { return true; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override;
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  void planned(const StepPlan& plan) override;
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  // One that it does not know is passed over.
  void completed(const TransferCompletion& completion) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void forget_blocks(const RequestView& request) override;
  void spoiled(const RequestView& request, std::uint32_t num_good_tokens) override;
  void sent(RequestId request) override;
  void step_output() override {}
  // What is in transfer leaves the tier when that is over, and is not found until then.
  bool reset() override;

  // Between two calls of the core, as OffloadLedger::restore(). After a reset nothing is taken.
  void restore(OffloadSlot slot, const OffloadKey* key);
  // The same. What is under way goes on.
  void serve(const TierService& service) { service_ = service; }
  // The same. From now on no load begins that takes longer than computing its tokens, behind all others that are under way; all begin while
  // one of the costs is not known.
  void set_costs(const TierCosts& costs) { costs_ = costs; }

  // For whom moves blocks between this tier and another one, between two calls of the core (offload_moves.cpp; factor() is 1).
  // Keys that look as if they would be evicted next, `most` at most.
  void append_next(std::size_t most, std::vector<OffloadKey>& keys) const { ledger_->append_next(most, keys); }
  // What a transfer would carry for the key's place, which stays as it is until release(); nullopt: the tier has no such block.
  std::optional<std::uint64_t> hold(const OffloadKey& key);
  void release(const OffloadKey& key);
  // A place for a block that comes from another tier; nullopt: it is here already, or there is no room. adopted() is to follow.
  std::optional<OffloadSlot> adopt(const OffloadKey& key);
  void adopted(const OffloadKey& key, bool is_stored);

  // For a tier that others store to as well, and forget from, so that what it holds must be asked (offload_moves.cpp; factor() is 1). Names
  // that match() would want, of all groups, appended.
  void append_wanted(const RequestView& request, std::uint32_t num_local_tokens, std::vector<OffloadKey>& keys);
  // And those of all its full blocks.
  void append_names(const RequestView& request, std::vector<OffloadKey>& keys);
  // What was answered, before match() or between two calls of the core: it is there, and is found where there is room for its name; or it
  // is not. What is in transfer stays as it is.
  void found_outside(const OffloadKey& key);
  void missed_outside(const OffloadKey& key);

  // Stops the program if what is in transfer is not what is counted, here and in the ledger. Slow.
  void check_invariants() const;
  [[nodiscard]] const OffloadLedger& ledger() const { return *ledger_; }
  void clear_events() { ledger_->clear_events(); }
  [[nodiscard]] const OffloadCounters& counters() const { return counters_; }
  [[nodiscard]] std::uint32_t factor() const { return factor_; }
  // Requests and transfers of which it remembers something; none when all is over.
  [[nodiscard]] std::size_t num_tracked() const { return tracked_.size() + moving_.size() + loads_.size() + decided_.size() + due_.size(); }

 private:
  // A request's blocks are stored in order: `next_stored` is the first that is not decided upon, in offloaded blocks.
  struct Tracked {
    std::uint32_t next_stored = 0;
    bool stores = false;  // something of it was to be stored: its blocks stay until that is over
    bool has_ended = false;
    std::uint32_t num_loads = 0;          // that are not over
    std::uint32_t num_loaded_tokens = 0;  // by them, as far as is known
    std::optional<bool> is_taken = {};    // whether it is stored at all; nullopt: not decided yet
    std::vector<OffloadKey> storing;
  };
  // A transfer from its decision to its end: first in loads_ or decided_, in due_ with the next plan, then by its id in moving_.
  struct Moving {
    RequestId request;
    TransferDirection direction;
    std::uint32_t group = 0;
    std::uint32_t first_key = 0;  // of a load: index of keys[0] in the request, in offloaded blocks
    bool was_refused = false;     // as many as may be were open
    std::vector<OffloadKey> keys;
    std::vector<BlockId> blocks;
    // Parallel to `blocks`.
    std::vector<std::uint32_t> indices = {};  // in the request's table
    std::vector<std::uint64_t> places;
  };
  struct KeyHash {
    std::size_t operator()(const OffloadKey& key) const { return key.prefix() ^ key.group; }
  };
  using KeySet = std::unordered_set<OffloadKey, KeyHash>;

  OffloadConnector(std::unique_ptr<OffloadLedger> ledger, GroupWindows windows, const OffloadConnectorOptions& options,
                   const CoreConfig& config, std::uint32_t factor, std::uint64_t bytes_per_block, TierPlaces* places);
  [[nodiscard]] std::uint64_t number_of(std::uint64_t place) const {
    QUIRE_CHECK(places_ == nullptr || place < numbers_.size(), "a place of the tier has a number");
    return places_ == nullptr ? place : numbers_[place];
  }
  std::uint64_t assign(std::uint64_t place, const OffloadKey& key);
  void add_key(const RequestView& request, std::uint32_t group, std::size_t index);
  // Of the request's offloaded blocks from `begin` to `end`, of all groups, block by block, or of one; valid until the next call.
  std::span<const OffloadKey> keys_of(const RequestView& request, std::size_t begin, std::size_t end);
  std::span<const OffloadKey> keys_of(const RequestView& request, std::uint32_t group, std::size_t begin, std::size_t end);
  // Of the blocks that each group holds, in the same order; `asked_` says which they are.
  std::span<const OffloadKey> keys_held(const RequestView& request, std::size_t begin, std::size_t end);
  // How many offloaded blocks of the prompt could be loaded at most.
  [[nodiscard]] std::size_t num_loadable(const RequestView& request) const;
  // Up to which offloaded block the prompt can be loaded; `keys` are those from `begin` to `end`, and the ledger has the first num_first.
  std::size_t end_of_hit(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end, std::size_t num_first);
  [[nodiscard]] bool is_being_loaded(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end) const;
  [[nodiscard]] bool computes_faster(std::uint32_t num_local_tokens, std::uint32_t num_tokens) const;
  [[nodiscard]] bool is_busy_storing(std::size_t num_blocks) const;
  void plan_load(const RequestView& request, std::uint32_t group, std::span<const BlockId> blocks, std::uint32_t first, std::uint32_t end);
  void plan_store(const ScheduledRequest& scheduled);
  // Whether the request is stored, of which so many offloaded blocks could be now, each with a key per group.
  bool takes(Tracked& tracked, std::size_t num_blocks);
  // Its offloaded blocks before `end` that were not decided upon yet.
  void decide_stores(const RequestView& request, Tracked& tracked, std::uint32_t end);
  void store_rest(const RequestView& request, Tracked& tracked);
  void add_stores(RequestId request, const PreparedStore& store, Tracked& tracked);
  Moving& store_of(RequestId request, std::uint32_t group, std::size_t first_decided);
  void end_stores(std::vector<OffloadKey>& keys);
  void end_store(const Moving& store);
  bool begin(Moving& moving, TransferList& transfers);
  [[nodiscard]] bool holds_blocks(const Moving& moving) const;
  // Its keys are free; whose it is.
  Tracked& let_go(const Moving& load);
  void end_load(const Moving& load, const TransferCompletion& completion);
  void drop_bad(const Moving& load, std::span<const BlockId> bad_blocks, Tracked& tracked);
  void fail_store(const Moving& store);
  // Leaves the tier, now or when nobody loads it any more.
  void drop(const OffloadKey& key);
  void forget_if_over(RequestId request);
  void check_moving(const Moving& moving) const;

  struct Asked {
    std::uint32_t group;
    std::size_t index;  // of the offloaded block in the request
  };

  std::unique_ptr<OffloadLedger> ledger_;
  GroupWindows windows_;
  const Core* core_ = nullptr;
  std::uint32_t block_size_;  // tokens
  std::uint32_t factor_;
  std::uint64_t bytes_per_block_;
  std::uint32_t max_storing_blocks_;
  bool waits_for_loads_;  // of others
  bool found_when_stored_;
  std::optional<ChurnGauge> churn_;
  TierPlaces* places_;                  // may be null
  std::vector<std::uint64_t> numbers_;  // by place, with `places_`: what transfers carry
  bool was_reset_ = false;
  TierService service_;
  TierCosts costs_;
  RequestId matched_{};  // the last match() asked about it,
  std::uint32_t num_local_tokens_ = 0;
  std::uint32_t num_declined_tokens_ = 0;                        // and answered that these are computed
  std::size_t num_storing_blocks_ = 0, num_loading_blocks_ = 0;  // in transfer, or about to be
  std::unordered_map<std::uint64_t, Tracked> tracked_;           // by request
  // Of all requests. Others that want one of these wait (unless OffloadConnectorOptions::join_loads), or find it in the cache afterwards.
  KeySet being_loaded_;
  KeySet doomed_;                                     // in transfer, and not to be kept
  std::vector<Moving> loads_;                         // of this plan
  std::vector<Moving> decided_;                       // stores of this plan, for the next one
  std::vector<Moving> due_;                           // stores that begin with this plan
  std::unordered_map<std::uint64_t, Moving> moving_;  // by transfer
  OffloadCounters counters_;
  // Scratch of keys_of() and keys_held(), kept for its memory.
  std::vector<OffloadKey> keys_;
  std::vector<Asked> asked_;                    // parallel to `keys_`, after keys_held()
  std::vector<std::span<const BlockId>> held_;  // by group, then
};

}  // namespace quire
