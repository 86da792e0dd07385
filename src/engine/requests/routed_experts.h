#pragma once
// The experts that tokens have gone through: those of a prompt come from the worker in parts and go out whole with the first token, those
// of an answer with the token behind them. Belongs to the engine thread.
#include <cstddef>

#include "engine/requests/live_requests.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class RoutedExperts {
 public:
  explicit RoutedExperts(LiveRequests& live) : live_(live) {}

  // Of tokens of prompts, into the places of their requests. What comes again behind a preemption is the same, and passed over.
  void take(const WorkerResult& result);
  // Into the output with the first `num_tokens` samples of `result`, those that came before each of them.
  static void give(const RequestResult& result, std::size_t num_tokens, Live& live, RequestOutput& output);

 private:
  LiveRequests& live_;
};

}  // namespace quire
