#pragma once
// Log probabilities of prompts: they come from the worker in parts, as the prompt is computed, and go out whole with the first token.
// Belongs to the engine thread.
#include "engine/requests/live_forks.h"
#include "engine/requests/live_requests.h"
#include "quire/base/ids.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class PromptLogprobs {
 public:
  PromptLogprobs(LiveRequests& live, LiveForks& forks) : live_(live), forks_(forks) {}

  // Into the places of their requests. What has been computed before a preemption has the same bits; those forked from a request may have
  // given it out. Where a token's are not finite, all end that have the prompt's log probabilities in common.
  void take(const WorkerResult& result);

 private:
  void fail_all(RequestId id);

  LiveRequests& live_;
  LiveForks& forks_;
};

}  // namespace quire
