#pragma once
// Loads of requests whose turn has not come (CureOptions::early_loads): there is no slot for them, or no tokens are left. They stay where
// they are in their queue, also while they load.
//
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   waiting_for_remote_kv -> waiting, preempted   they have come
//
// Such a load begins where the pool has room for all of its request, beside all that goes before it and what running requests are known to
// want, and a share of the pool stays free for what they put out. Where that was too little, it is given back (giving_way.h).
#include <cstdint>
#include <vector>

#include "core/schedule/loops/pressure.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/request.h"
#include "quire/base/ids.h"

namespace quire {

// Called once per step by the waiting loop, on the core's thread. It must not delay anybody who goes before: it takes only what neither the
// running requests nor those in front are known to want.
class EarlyLoads {
 public:
  EarlyLoads(const Foundation& base, const StepBudget& budget, LookUp& look_up, const Pressure& pressure)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        budget_(budget),
        look_up_(look_up),
        pressure_(pressure) {}

  // The waiting loop of this step has ended for want of slots or tokens. One request is looked up at most.
  void begin(StepId step);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, queues, budget, look_up, pressure, next] = self;
  }

 private:
  // Nothing of it is there or on its way, and it was not asked about lately.
  [[nodiscard]] bool may_ask(const Request& request, StepId step) const;
  // Blocks that running requests will take, as far as is known, and those that stay free.
  [[nodiscard]] std::uint32_t num_kept_for_running() const;
  // That it needs besides those that it has, for all its tokens.
  [[nodiscard]] std::uint32_t num_wanted_blocks(Request& request);
  // Unless there is nothing to load, or no room beside what is to be left free.
  void try_begin(Request& request, std::uint32_t num_left_free);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  const StepBudget& budget_;
  LookUp& look_up_;
  const Pressure& pressure_;
  std::vector<Request*> next_;  // in begin()
};

}  // namespace quire
