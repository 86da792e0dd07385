#pragma once
// Frees blocks when blocks are missing, before a running request is preempted or all requests would wait forever. Frees pins, shares of
// forks, and the blocks of waiting requests: swapped-out requests, loaded requests, and sessions with their next input. Blocks of an early
// load are freed for any earlier request.
//
//   waiting_for_remote_kv -> waiting, preempted   reclaim: the request's blocks are loaded, but another request needs blocks first
//   waiting -> waiting (a session)                reclaim: the request is computed again from its first token
//   waiting_for_input -> waiting_for_input        reclaim_idle_session: the request is computed again when its input arrives
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"

namespace quire {

// Called by the running loop, by AdmissionAllocator, by BlockRelief and by a reset of the cache, on the core's thread. Each function
// returns whether it freed blocks or references. The caller tries its allocation again after every success, so a successful call must free
// at least one reference, or the caller's loop would not end.
class BlockReclaimer {
 public:
  BlockReclaimer(Context& context, Requests& requests, Queues& queues, Policy& policy, Forks& forks, Swap& swap)
      : context_(context), requests_(requests), queues_(queues), policy_(policy), forks_(forks), swap_(swap) {}

  // Frees blocks for a running request that is missing `num_missing` blocks. With swapping, also frees swapped and loaded blocks of waiting
  // requests if no other request runs: preempting the request itself would not help, because it would be admitted and fail again forever.
  bool reclaim_before_preempting(const Request& request, std::uint32_t num_missing);
  // Frees blocks for a waiting request if no request runs. While a request runs, its end will free blocks, so blocks that are kept for
  // later use stay.
  bool reclaim_while_idle(const Request& beneficiary);
  // Frees the blocks of the last request with an early load. Does so only if all such requests together hold at least `num_missing` blocks.
  bool reclaim_for_earlier(const Request& beneficiary, std::uint32_t num_missing);
  // Frees the blocks of the session that has waited longest for its input (FixOptions::idle_sessions_yield). Returns false if no such
  // session exists.
  bool reclaim_idle_session(const Request& beneficiary);
  // Frees the blocks of the last request with an early load. Returns false if no such request exists.
  bool cancel_last_early_load();

 private:
  // Frees the loaded blocks of the last waiting request other than `beneficiary`. Returns false if no such request exists.
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
