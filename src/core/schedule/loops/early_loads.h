#pragma once
// Loads blocks for requests before their turn (FixOptions::early_loads), while no slot is free for them or no tokens are left. The
// requests keep their position in their queue, also while they load.
//
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   waiting_for_remote_kv -> waiting, preempted   the blocks have arrived
//
// An early load begins if the pool has room for the whole request, in addition to the known needs of earlier requests and running requests.
// A share of the pool stays free for the outputs of running requests. If that is too little, the loaded blocks are freed
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

// The waiting loop calls it once per step, on the core's thread. It must not delay any earlier request: it takes only blocks that neither
// running requests nor earlier requests are known to need.
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

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, queues, budget, look_up, pressure, next] = self;
  }

 private:
  // Returns whether the request holds and loads nothing, and was not looked up recently.
  [[nodiscard]] bool can_query(const Request& request, StepId step) const;
  // Returns the blocks that running requests are known to need, plus the blocks that stay free.
  [[nodiscard]] std::uint32_t num_reserved_for_running() const;
  // Returns the blocks that the request needs for all its tokens, in addition to the blocks that it has.
  [[nodiscard]] std::uint32_t num_wanted_blocks(Request& request);
  // Begins the load, unless there is nothing to load or too little room above `num_min_free_blocks`.
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
