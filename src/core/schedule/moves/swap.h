#pragma once
// Preempted requests whose blocks lie outside of the pool (SwapOptions). Blocks that others hold too stay where they are, and the request
// keeps its references; the others are free at once: whoever writes to one waits for the store (transfers.h: fences).
//
// States of a request's blocks, and who moves them:
//   (in the pool) -> storing   take_out: preempted
//   storing -> stored          over: the stores have ended
//   stored -> loading          bring_back: the request waits as one that a connector loads for
//   loading -> (in the pool)   over: the loads have ended; it is promoted as one whose blocks have come, and computes on
// Who has no block of its own is stored as soon as it is taken out, and its loads are over as soon as they begin.
//   any -> lost                drop, or a transfer that failed: it is computed again; places in transfer come free when that is over
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
  bool has_failed = false;            // a transfer
  Request* request = nullptr;         // null: nobody wants them any more
  std::uint32_t num_open = 0;         // transfers
  std::vector<TakenBlock> blocks;     // by group, then index; the ids are those that the open transfers touch
  std::vector<std::uint64_t> places;  // parallel to them
  KvBlocks left;                      // what loads fill although nobody wants it

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [stage, has_failed, request, num_open, blocks, places, left] = self;
    form(stage, has_failed, request, num_open, blocks, places, left);
  }
};

// Called by preemption (out), the waiting loop (back) and the ends of transfers, on the core's thread. It plans; a transport moves the
// bytes. A transfer that is open is never forgotten, even if its request has ended: its places and blocks stay taken until it is over.
class Swap {
 public:
  Swap(Context& context, KvCacheManager& kv, OpenTransfers& open, Requests& requests, Queues& queues);

  // Of a request that is being preempted: its own blocks are given away to be stored. `was_planned`: it was taken out of this plan. False,
  // and nothing happened: it is to be computed again.
  bool take_out(Request& victim, bool was_planned);
  // The stores are over, nothing of it is in flight, and loads can be begun.
  [[nodiscard]] bool can_come_back(const Request& request) const;
  // The number of blocks that lack, beside those that are to be left free; 0: it has them, and they are being loaded.
  std::uint32_t bring_back(Request& request, std::uint32_t num_left_free);
  // The request gives up what it has, in the pool and outside, and will be computed again; or it has ended.
  void drop(Request& request, EventCause cause);
  void forget(Request& request);
  // That of the last one that waits and holds blocks in the pool, but not the beneficiary's; false: there is none.
  bool give_up_last(const Request& beneficiary);
  void drop_all(EventCause cause);

  // Opens what take_out() and bring_back() have begun since the last plan.
  void plan(PlanArena& arena);
  // A transfer of tier kSwapTier has ended.
  void over(const TransferCompletion& completion);

  void set_costs(const SwapCosts& costs) { costs_ = costs; }
  [[nodiscard]] const SwapCosts& costs() const { return costs_; }
  [[nodiscard]] bool is_on() const { return context_.config.swap.swap_choice != SwapChoice::off; }
  // Whose transfers are open though no request waits for loads.
  [[nodiscard]] std::uint32_t num_awaiting() const;
  [[nodiscard]] bool any_out() const;
  [[nodiscard]] std::uint32_t num_used_places() const {
    QUIRE_CHECK(num_free_places() <= context_.config.swap.num_swap_places, "a place is free once");
    return context_.config.swap.num_swap_places - num_free_places();
  }
  [[nodiscard]] std::span<const std::unique_ptr<SwappedBlocks>> all() const { return swapped_; }
  // Stops the program if the books do not agree.
  void check_invariants() const;
  // The first rule that does not hold; null: all do.
  [[nodiscard]] const Rule* broken_rule() const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, open_transfers, requests, queues, group_bytes, is_encoded, costs, free_places, free_far_places,
                            swapped, spare, to_begin, open, ids] = self;
    form(costs, free_places, free_far_places, swapped);
    std::vector<Moving> moving;
    if constexpr (!Form::kReads) moving = self.to_moving();
    form(moving);
    if constexpr (Form::kReads) form.expect(self.assign(moving), "transfers of swapped blocks are theirs");
  }

 private:
  struct Open {
    TransferId id;
    SwappedBlocks* swapped;
  };
  // An Open by its place in the list of swapped blocks.
  struct Moving {
    static constexpr bool kIsRaw = true;  // all of its bytes count
    std::uint64_t id = 0, place = 0;
  };
  [[nodiscard]] std::vector<Moving> to_moving() const;
  // Who was read gets to know their requests and transfers. False: they cannot have any such.
  [[nodiscard]] bool assign(std::span<const Moving> all);
  [[nodiscard]] std::uint32_t num_free_places() const { return static_cast<std::uint32_t>(free_places_.size() + free_far_places_.size()); }
  [[nodiscard]] bool is_far(std::uint32_t place) const {
    return place >= context_.config.swap.num_swap_places - context_.config.swap.num_far_places;
  }
  std::uint32_t take_place();
  void give_place(std::uint32_t place) {
    QUIRE_CHECK(place < context_.config.swap.num_swap_places, "a place that there is");
    (is_far(place) ? free_far_places_ : free_places_).push_back(place);
  }
  [[nodiscard]] bool may_begin() const { return open_transfers_.num_left() >= (to_begin_.size() + 1) * context_.num_groups; }
  [[nodiscard]] bool may_move(const Request& victim, bool was_planned) const;
  [[nodiscard]] bool is_worth_it(const Request& victim) const;
  bool decline(const Request& victim, EventCause cause, std::uint64_t& counter);
  SwappedBlocks& make(Request& request);
  void release(SwappedBlocks& swapped);
  void begin(SwappedBlocks& swapped, PlanArena& arena);
  void stores_over(SwappedBlocks& swapped);
  void loads_over(SwappedBlocks& swapped);
  void detach(Request& request);
  void tell(EventKind what, EventCause cause, const Request& request, std::size_t num_blocks);

  Context& context_;
  KvCacheManager& kv_;
  OpenTransfers& open_transfers_;
  Requests& requests_;
  Queues& queues_;
  std::vector<std::uint64_t> group_bytes_;  // of a block
  std::vector<bool> is_encoded_;            // groups that keep what an encoder has made
  SwapCosts costs_;
  std::vector<std::uint32_t> free_places_, free_far_places_;  // last in, first out
  std::vector<std::unique_ptr<SwappedBlocks>> swapped_, spare_;
  // Decided in this step; their transfers open at its end, when it is known which blocks the plan writes to.
  std::vector<SwappedBlocks*> to_begin_;  // within a step
  std::vector<Open> open_;
  std::vector<BlockId> ids_;  // of one transfer
};

}  // namespace quire
