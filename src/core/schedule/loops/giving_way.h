#pragma once
// What gives way where blocks lack, before a running request is preempted or all wait for ever: pins, shares of forks, and what waiting
// requests hold that were swapped out, or whose blocks have been loaded, or that are sessions with their next input. What was loaded before
// its turn gives way to all who go first.
//
//   waiting_for_remote_kv -> waiting, preempted   take_back: they came, and another needs them more
//   waiting (a session) stays so                  take_back: it is computed again from its first token on
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"

namespace quire {

// Called by both loops, on the core's thread. Each call frees something or says that it cannot; the caller tries again after every success,
// so a call must free at least one reference, or the loop would not end.
class GivingWay {
 public:
  GivingWay(Context& context, Requests& requests, Queues& queues, Policy& policy, Forks& forks, Swap& swap)
      : context_(context), requests_(requests), queues_(queues), policy_(policy), forks_(forks), swap_(swap) {}

  // A running request lacks so many blocks. Where it is the only one, preempting it would not help: it may be admitted again, as far, for
  // ever.
  bool before_preempting(const Request& request, std::uint32_t num_missing);
  // One that waits does. While somebody runs, blocks come free when he ends, and what is kept for later stays.
  bool while_idle(const Request& beneficiary);
  // One that runs or waits lacks so many, and those who were loaded before their turn, and stand behind it, hold as many.
  bool to_earlier(const Request& beneficiary, std::uint32_t num_missing);
  // The last one's, whoever may need them; false: there is none.
  bool end_early_load();

 private:
  // False: nobody else who waits holds blocks that have come.
  bool take_back_loaded(const Request& beneficiary);
  void take_back(Request& request, EventCause cause, RequestId beneficiary);

  Context& context_;
  Requests& requests_;
  Queues& queues_;
  Policy& policy_;
  Forks& forks_;
  Swap& swap_;
};

}  // namespace quire
