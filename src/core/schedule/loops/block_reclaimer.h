#pragma once
// Frees blocks when they run out, before a running request is preempted or all requests wait forever. It frees pins, shares of forks, and
// blocks of waiting requests: swapped-out requests, loaded requests, and sessions with their next input. Blocks that were loaded before
// their turn are freed for any earlier request.
//
//   waiting_for_remote_kv -> waiting, preempted   reclaim: its blocks have arrived, but another request needs them more
//   waiting -> waiting (a session)                reclaim: it is computed again from its first token
//   waiting_for_input -> waiting_for_input        reclaim_idle_session: it is computed again when its input arrives
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"

namespace quire {

// Both loops call it on the core's thread. Each call frees something or returns that it cannot. The caller tries again after every success,
// so a successful call must free at least one reference, or the loop would not end.
class BlockReclaimer {
 public:
  BlockReclaimer(Context& context, Requests& requests, Queues& queues, Policy& policy, Forks& forks, Swap& swap)
      : context_(context), requests_(requests), queues_(queues), policy_(policy), forks_(forks), swap_(swap) {}

  // Frees blocks for a running request that is missing `num_missing` blocks. If it is the only running request, preempting it would not
  // help: it could be admitted again, up to the same point, forever.
  bool reclaim_before_preempting(const Request& request, std::uint32_t num_missing);
  // Frees blocks for a waiting request if no request runs. While a request runs, blocks become free when it ends, so blocks kept for later
  // stay.
  bool reclaim_while_idle(const Request& beneficiary);
  // Frees the blocks of the last request that was loaded before its turn. Does so only if all such requests together hold `num_missing`
  // blocks.
  bool reclaim_for_earlier(const Request& beneficiary, std::uint32_t num_missing);
  // Frees the blocks of the session that has waited longest for its input (FixOptions::idle_sessions_yield). False: there is no such
  // session.
  bool reclaim_idle_session(const Request& beneficiary);
  // Frees the blocks of the last request that was loaded early. False: there is no such request.
  bool cancel_last_early_load();

 private:
  // Frees the loaded blocks of the last other waiting request. False: there is no such request.
  bool reclaim_loaded_blocks(const Request& beneficiary);
  void reclaim(Request& request, EventCause cause, RequestId beneficiary);
  void report_reclaimed(const Request& request, EventCause cause, RequestId beneficiary);

  Context& context_;
  Requests& requests_;
  Queues& queues_;
  Policy& policy_;
  Forks& forks_;
  Swap& swap_;
};

}  // namespace quire
