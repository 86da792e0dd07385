#pragma once
// Log probabilities of prompts: they come from the worker in parts, as the prompt is computed, and are delivered whole with the first
// token. Belongs to the engine thread.
#include "engine/requests/live_forks.h"
#include "engine/requests/live_requests.h"
#include "quire/base/ids.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class PromptLogprobs {
 public:
  PromptLogprobs(LiveRequests& live, LiveForks& forks) : live_(live), forks_(forks) {}

  // Stores the log probabilities in their requests. Existing entries are kept: recomputed ones have the same bits, and a request that was
  // forked may have delivered them. If a token's values are not finite, all requests that share the prompt's log probabilities end.
  void take(const WorkerResult& result);

 private:
  void fail_all(RequestId id);

  LiveRequests& live_;
  LiveForks& forks_;
};

}  // namespace quire
