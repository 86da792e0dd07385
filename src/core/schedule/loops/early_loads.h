#pragma once
// Loads blocks for waiting requests before their turn (FixOptions::early_loads), while all slots are taken or no tokens are left in the
// step. The requests keep their position in their queue, also while they load.
//
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   waiting_for_remote_kv -> waiting, preempted   the blocks are loaded
//
// An early load begins if the pool has room for the whole request, in addition to what earlier requests and running requests are known to
// need. A share of the pool stays free for the outputs of running requests. If this share is too small, the loaded blocks are freed
// (block_reclaimer.h).
#include <cstdint>
#include <vector>

#include "core/schedule/loops/pressure.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"
#include "quire/base/ids.h"

namespace quire {

// Called once per step after the waiting loop, on the core's thread. An early load must not delay an earlier request: it takes only blocks
// that neither running requests nor earlier requests are known to need.
class EarlyLoads {
 public:
  EarlyLoads(const SharedState& base, const StepBudget& budget, PrefixLookUp& look_up, const Pressure& pressure)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        budget_(budget),
        look_up_(look_up),
        pressure_(pressure) {}

  // Called when the waiting loop of this step has ended because slots or tokens were missing. Looks up at most one request.
  void begin(StepId step);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, queues, budget, look_up, pressure, next] = self;
  }

 private:
  // Returns whether the request may be looked up: it has no blocks, loads nothing, and was not looked up recently.
  [[nodiscard]] bool can_query(const Request& request, StepId step) const;
  // Returns the number of blocks that running requests are known to need, plus the share that stays free.
  [[nodiscard]] std::uint32_t num_reserved_for_running() const;
  // Returns the number of blocks that the request needs for all its tokens, in addition to the blocks that it has.
  [[nodiscard]] std::uint32_t num_wanted_blocks(Request& request);
  // Begins the load if the connector has blocks and, after it, at least `num_min_free_blocks` blocks stay free.
  void try_begin(Request& request, std::uint32_t num_min_free_blocks);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  const StepBudget& budget_;
  PrefixLookUp& look_up_;
  const Pressure& pressure_;
  std::vector<Request*> next_;  // scratch of begin()
};

}  // namespace quire
