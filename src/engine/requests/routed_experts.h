#pragma once
// The MoE experts to which tokens were routed. The experts of a prompt come from the worker in parts, and are delivered together with the
// first token. The experts of an output token are delivered with the next token. Belongs to the engine thread.
#include <cstddef>

#include "engine/requests/live_requests.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class RoutedExperts {
 public:
  explicit RoutedExperts(LiveRequests& live) : live_(live) {}

  // Stores the experts of prompt tokens in their requests. Rows that are computed again after a preemption are equal and are skipped.
  void take(const WorkerResult& result);
  // Adds the experts of the rows that led to the first `num_tokens` samples of `result` to the output.
  static void give(const RequestResult& result, std::size_t num_tokens, LiveRequest& live, RequestOutput& output);

 private:
  LiveRequests& live_;
};

}  // namespace quire
