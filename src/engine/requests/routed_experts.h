#pragma once
// The experts that tokens were routed to. Experts of a prompt come from the worker in parts and are delivered whole with the first token.
// Experts of an output token are delivered with the next token. Belongs to the engine thread.
#include <cstddef>

#include "engine/requests/live_requests.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class RoutedExperts {
 public:
  explicit RoutedExperts(LiveRequests& live) : live_(live) {}

  // Stores the experts of prompt tokens in their requests. Rows that come again after a preemption are the same and are skipped.
  void take(const WorkerResult& result);
  // Adds to the output the experts of the rows that led to the first `num_tokens` samples of `result`.
  static void give(const RequestResult& result, std::size_t num_tokens, LiveRequest& live, RequestOutput& output);

 private:
  LiveRequests& live_;
};

}  // namespace quire
