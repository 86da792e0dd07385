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

// Shared by the parts of the scheduler, on the core's thread. The counters are the numbers of requests in certain states. Code that changes
// such a state must also change the counter; Core::check_invariants() recounts them.
struct Queues {
  Queues(const Context& context, Jobs& jobs_that_queue);

  // vLLM's _enqueue_waiting_request: adds the request to the queue for its state, at the end or where the policy puts it.
  void enqueue(Request& request, double time);
  // Called when the step's admissions have ended. Moves each skipped request to the front of the queue to which it now belongs.
  void requeue_skipped();
  // defer() marks a request as skipped or blocked, end_deferral() removes the mark. Only under block_holders_first.
  void defer(Request& request);
  void end_deferral(Request& request);
  // Replaces the content of `next` by the next requests in the order of the queues, at most `most`.
  void next_waiting(std::size_t most, std::vector<Request*>& next) const;
  [[nodiscard]] std::size_t num_waiting() const { return waiting.size() + skipped_waiting.size(); }

  std::vector<Request*> running;  // in order of admission
  // Under block_holders_first, `skipped_waiting` contains the waiting requests that hold blocks, and `waiting` all others. Otherwise the
  // queues are vLLM 0.19.0's: a request that is skipped (because of a grammar, a transfer, an input) moves to step_skipped, and to the
  // front of skipped_waiting when the step's admissions have ended. step_skipped is therefore empty between two calls.
  RequestQueue waiting, skipped_waiting, step_skipped;
  // Streaming sessions that wait for their next input, in skipped_waiting (under block_holders_first: in either queue).
  std::uint32_t num_waiting_for_input = 0;
  std::uint32_t num_deferred = 0;  // waiting requests that are `deferred`
  std::uint32_t num_loading = 0;   // requests for which is_loading() returns true, in either queue
  PauseState pause = PauseState::unpaused;
  std::vector<RequestId> preempted_by_reset;  // reported as preempted in the next plan (DecisionRules::stale_outputs)

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
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

// Returns how many more requests may run. A streaming session that waits for input keeps its batch row under
// waiting_sessions_count_as_running.
[[nodiscard]] std::size_t num_free_rows(const Context& context, const Queues& queues);

}  // namespace quire
