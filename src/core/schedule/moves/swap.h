#pragma once
// Preempted requests whose blocks are stored outside the pool (SwapOptions). Blocks that other requests also hold stay in the pool, and the
// request keeps its references to them. Its private blocks are free immediately: a step that writes to one of them waits for the store
// (transfers.h: fences).
//
// States of a request's blocks, and the calls that change them:
//   (in the pool) -> storing   swap_out: the request is preempted
//   storing -> stored          over: the stores have ended
//   stored -> loading          swap_in: the request waits as for a load by a connector
//   loading -> (in the pool)   over: the loads have ended; the request is promoted like one with received blocks, and continues
//   any -> lost                drop, or a failed transfer: the request is computed again; slots in a transfer become free when it has ended
// A request without private blocks is `stored` as soon as it is swapped out, and its loads end as soon as they begin.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"

namespace quire {

struct SwappedBlocks {
  enum class Stage : std::uint8_t { storing, stored, loading };
  Stage stage = Stage::storing;
  bool has_failed = false;              // a transfer has failed
  Request* request = nullptr;           // null if no request needs the blocks any more
  std::uint32_t num_open = 0;           // number of open transfers
  std::vector<SwappedOutBlock> blocks;  // by group, then index; open transfers contain the same block ids
  std::vector<std::uint64_t> places;    // slots outside of the pool, parallel to `blocks`
  KvBlocks left;                        // blocks to which loads still write although no request needs them
};

// Called on the core's thread by preemption (swap out), by the waiting loop (swap in) and when transfers end. Swap plans the transfers; a
// transport moves the bytes. An open transfer keeps its slots and blocks until it ends, even if its request has ended.
class Swap {
 public:
  Swap(Context& context, KvCacheManager& kv, OpenTransfers& open, Requests& requests, Queues& queues);

  // Swaps out a request that is being preempted: releases its private blocks, whose content is stored. `was_planned`: the request was
  // removed from this step's plan. Returns false if nothing changed and the request must be computed again.
  bool swap_out(Request& victim, bool was_planned, EventCause why);
  // Returns whether the request's stores have ended, no plan with the request is in flight, and loads can begin.
  [[nodiscard]] bool can_swap_in(const Request& request) const;
  // Takes blocks for the request and begins to load them. Returns the number of blocks that are missing if `num_min_free_blocks` must stay
  // free; 0 on success.
  std::uint32_t swap_in(Request& request, std::uint32_t num_min_free_blocks);
  // drop() and forget() free the request's blocks in the pool and its swap slots. drop() also counts and reports the loss: the request will
  // be computed again.
  void drop(Request& request, EventCause cause);
  void forget(Request& request);
  // Drops one swap: the last swapped-out request that holds blocks in the pool, is not loading, and is not the beneficiary. Returns false
  // if no such request exists.
  bool drop_last_swap(const Request& beneficiary);
  void drop_all(EventCause cause);

  // Opens the transfers of all swap_out() and swap_in() calls since the last plan.
  void plan(PlanArena& arena);
  // Called when a transfer of tier kSwapTier has ended.
  void over(const TransferCompletion& completion);

  void set_costs(const SwapCosts& costs) { costs_ = costs; }
  [[nodiscard]] const SwapCosts& costs() const { return costs_; }
  [[nodiscard]] bool is_on() const { return context_.config.swap.swap_choice != SwapChoice::off; }
  // Returns the number of swaps with open transfers, except loads that a request waits for.
  [[nodiscard]] std::uint32_t num_awaiting() const;
  [[nodiscard]] bool has_swapped_out() const;
  [[nodiscard]] std::uint32_t num_used_slots() const {
    QUIRE_CHECK(num_free_slots() <= context_.config.swap.num_swap_slots, "no more swap slots are free than there are");
    return context_.config.swap.num_swap_slots - num_free_slots();
  }
  [[nodiscard]] std::span<const std::unique_ptr<SwappedBlocks>> all() const { return swapped_; }
  // Stops the program if the counts are wrong.
  void check_invariants() const;
  // Returns the first rule that does not hold, or null.
  [[nodiscard]] const Rule* broken_rule() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, open_transfers, requests, queues, group_bytes, is_encoded, costs, free_slots, free_slow_slots,
                            swapped, spare, to_begin, open, ids] = self;
    form(costs, free_slots, free_slow_slots, swapped);
    std::vector<SwapTransfer> moving;
    if constexpr (!Archive::kIsReading) moving = self.to_swap_transfers();
    form(moving);
    if constexpr (Archive::kIsReading) form.expect(self.assign(moving), "transfers of swapped blocks match their swaps");
  }

 private:
  struct Open {
    TransferId id;
    SwappedBlocks* swapped;
  };
  // An Open in a checkpoint: the index of the swapped blocks in `swapped_` replaces the pointer.
  struct SwapTransfer {
    static constexpr bool kIsRaw = true;  // has no padding
    std::uint64_t id = 0, place = 0;
  };
  [[nodiscard]] std::vector<SwapTransfer> to_swap_transfers() const;
  // Connects swapped blocks that were read from a checkpoint with their requests and transfers. Returns false if they do not match.
  [[nodiscard]] bool assign(std::span<const SwapTransfer> all);
  [[nodiscard]] std::uint32_t num_free_slots() const { return static_cast<std::uint32_t>(free_slots_.size() + free_slow_slots_.size()); }
  [[nodiscard]] bool is_slow(std::uint32_t place) const {
    return place >= context_.config.swap.num_swap_slots - context_.config.swap.num_slow_slots;
  }
  std::uint32_t take_slot();
  void return_slot(std::uint32_t place) {
    QUIRE_CHECK(place < context_.config.swap.num_swap_slots, "the swap slot exists");
    (is_slow(place) ? free_slow_slots_ : free_slots_).push_back(place);
  }
  [[nodiscard]] bool may_begin() const { return open_transfers_.num_left() >= (to_begin_.size() + 1) * context_.num_groups; }
  [[nodiscard]] bool may_move(const Request& victim, bool was_planned) const;
  [[nodiscard]] bool is_worth_it(const Request& victim) const;
  bool decline(const Request& victim, EventCause cause, std::uint64_t& counter);
  SwappedBlocks& make(Request& request);
  void release(SwappedBlocks& swapped);
  void begin(SwappedBlocks& swapped, PlanArena& arena);
  void on_stores_completed(SwappedBlocks& swapped);
  void on_loads_completed(SwappedBlocks& swapped);
  void detach(Request& request);
  void report_swap(EventKind what, EventCause cause, const Request& request, std::size_t num_blocks);

  Context& context_;
  KvCacheManager& kv_;
  OpenTransfers& open_transfers_;
  Requests& requests_;
  Queues& queues_;
  std::vector<std::uint64_t> group_bytes_;  // bytes of a block, by group
  std::vector<bool> is_encoded_;            // by group: whether it holds encoder outputs
  SwapCosts costs_;
  std::vector<std::uint32_t> free_slots_, free_slow_slots_;  // last in, first out
  std::vector<std::unique_ptr<SwappedBlocks>> swapped_, spare_;
  // Swaps decided in this step. Their transfers open at the end of the step, when the blocks that the plan writes to are known.
  std::vector<SwappedBlocks*> to_begin_;  // valid within one step
  std::vector<Open> open_;
  std::vector<BlockId> ids_;  // scratch: the blocks of one transfer
};

}  // namespace quire
