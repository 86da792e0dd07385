#pragma once
// Requests that cannot go on: what the model gave, what their grammar costs, what was not loaded. Belongs to the engine thread.
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

  // Those that the model gave nothing finite for, or nothing to choose. Before the core's apply(), so that it drops the token that stands
  // for the failure. What was drawn from blocks that were not loaded is dropped in any case, and says nothing of the model.
  void end_failed(const WorkerResult& result);
  void end_refused(std::vector<Grammars::Failure> failures);
  // The core has ended it, for its blocks were not loaded (KvLoadFailurePolicy::fail).
  void end_unloaded(RequestId id);

 private:
  Core& core_;
  LiveRequests& live_;
  LiveForks& forks_;
  LiveSearches& searches_;
};

}  // namespace quire
