#pragma once
// Log probabilities of prompts. They come from the worker in parts while the prompt is computed, and are delivered together with the first
// token. Belongs to the engine thread.
#include "engine/requests/live_forks.h"
#include "engine/requests/live_requests.h"
#include "quire/base/ids.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class PromptLogprobs {
 public:
  PromptLogprobs(LiveRequests& live, LiveForks& forks) : live_(live), forks_(forks) {}

  // Stores the log probabilities in their requests. Existing entries are not replaced, because recomputed values have the same bits, and a
  // forked request may have delivered the entries already. If a token's values are not finite, all requests that share the prompt's log
  // probabilities are ended.
  void take(const WorkerResult& result);

 private:
  void fail_all(RequestId id);

  LiveRequests& live_;
  LiveForks& forks_;
};

}  // namespace quire
