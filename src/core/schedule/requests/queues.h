#pragma once
// The running requests and the waiting requests.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/schedule/requests/context.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_queue.h"

namespace quire {

// Shared by the loops, ends, sessions and transfers, on the core's thread. The counters say how many requests are in a state. Code that
// changes such a state must also change the counter; Core::check_invariants() recounts them.
struct Queues {
  Queues(const Context& context, Jobs& jobs_that_queue);

  // _enqueue_waiting_request: adds the request to the queue for its state, at the end or where the policy puts it.
  void enqueue(Request& request, double time);
  // Called when the step's admissions are over. Moves each skipped request to the front of the queue that it belongs to from now on.
  void requeue_skipped();
  // Under block_holders_first, these count the requests that were skipped or are blocked.
  void defer(Request& request);
  void end_deferral(Request& request);
  // Replaces `next` by the requests that would be taken next, at most `most`.
  void next_waiting(std::size_t most, std::vector<Request*>& next) const;
  [[nodiscard]] std::size_t num_waiting() const { return waiting.size() + skipped_waiting.size(); }

  std::vector<Request*> running;  // in order of admission
  // Under block_holders_first, `skipped_waiting` has the waiting requests that hold blocks, and `waiting` has all others. Otherwise they
  // are vLLM 0.19.0's: a request that is skipped (for a grammar, a transfer, an input) moves to step_skipped. When the step's admissions
  // are over, the request moves to the front of skipped_waiting. So step_skipped is empty between two calls.
  RequestQueue waiting, skipped_waiting, step_skipped;
  // Streaming sessions between two inputs, in skipped_waiting (block_holders_first: in either queue).
  std::uint32_t num_waiting_for_input = 0;
  std::uint32_t num_deferred = 0;  // waiting requests that are `deferred`
  std::uint32_t num_loading = 0;   // requests for which is_loading() holds; they wait, in either queue
  PauseState pause = PauseState::unpaused;
  std::vector<RequestId> preempted_by_reset;  // to be named in the next plan (DecisionRules::stale_outputs)

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [running, waiting, skipped_waiting, step_skipped, num_waiting_for_input, num_deferred, num_loading, pause,
                            preempted_by_reset, policy, block_holders_first, jobs] = self;
    form(running, waiting, skipped_waiting, num_waiting_for_input, num_deferred, num_loading, pause, preempted_by_reset);
  }

 private:
  const SchedulingPolicy policy_;
  const bool block_holders_first_;
  Jobs& jobs_;
};

// Returns how many more requests may run. A streaming session that waits for input keeps its batch row.
[[nodiscard]] std::size_t num_free_rows(const Context& context, const Queues& queues);

}  // namespace quire
