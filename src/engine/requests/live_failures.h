#pragma once
// Ends requests that cannot continue: the model's output is not finite, their grammar does not compile or costs too much, no token is left
// to sample, or their blocks were not loaded. Belongs to the engine thread.
#include <vector>

#include "engine/requests/grammars.h"
#include "engine/requests/live_forks.h"
#include "engine/requests/live_requests.h"
#include "engine/requests/live_searches.h"
#include "quire/core.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class LiveFailures {
 public:
  LiveFailures(Core& core, LiveRequests& live, LiveForks& forks, LiveSearches& searches)
      : core_(core), live_(live), forks_(forks), searches_(searches) {}

  // Ends the requests whose output is not finite, or for which no token is left to sample. Called before the core's apply(), so that the
  // core drops the placeholder of a failed sample. Skips requests whose tokens the core drops anyway. For example, a request that ran on
  // blocks that were not loaded may have a non-finite output although the model is correct.
  void end_failed(const WorkerResult& result);
  void end_refused(std::vector<Grammars::Failure> failures);
  // Reports to the client that its request has failed: the core has ended the request because blocks were not loaded
  // (KvLoadFailurePolicy::fail). Also ends the other requests of its beam search, or its siblings.
  void end_failed_load(RequestId id);

 private:
  Core& core_;
  LiveRequests& live_;
  LiveForks& forks_;
  LiveSearches& searches_;
};

}  // namespace quire
