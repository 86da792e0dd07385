#pragma once
// Who runs and who waits.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/schedule/requests/context.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_queue.h"

namespace quire {

// Shared by the loops, ends, sessions and transfers, on the core's thread. The two counters say how many requests are in a state; whoever
// changes that state changes the counter in the same breath, and Core::check_invariants() counts both anew.
struct Queues {
  Queues(const Context& context, Jobs& jobs_that_queue);

  // _enqueue_waiting_request: at the end of the one for its state, or where the policy puts it.
  void enqueue(Request& request, double time);
  // When the step's admissions are over: who was passed over goes in front of the queue that he is in from now on.
  void take_back_skipped();
  // Under holders_first: who is passed over, or blocked, is counted apart.
  void defer(Request& request);
  void end_deferral(Request& request);
  // Replaces `next` by those that are next to be taken, `most` at most.
  void next_waiting(std::size_t most, std::vector<Request*>& next) const;
  [[nodiscard]] std::size_t num_waiting() const { return waiting.size() + skipped_waiting.size(); }

  std::vector<Request*> running;  // in order of admission
  // Under holders_first `skipped_waiting` has those who wait and hold blocks, and `waiting` all others. Else they are vLLM 0.19.0's: who
  // was passed over (for a grammar, a transfer, an input) goes to step_skipped, and from there in front of skipped_waiting when the step's
  // admissions are over. So step_skipped is empty between two calls.
  RequestQueue waiting, skipped_waiting, step_skipped;
  std::uint32_t num_waiting_for_input = 0;  // streaming sessions between two inputs; they are in skipped_waiting (holders_first: in either)
  std::uint32_t num_deferred = 0;           // who waits and is `deferred`
  std::uint32_t num_loading = 0;            // requests for which is_loading() holds; they wait, in either queue
  PauseState pause = PauseState::unpaused;
  std::vector<RequestId> preempted_by_reset;  // to be named in the next plan (DecisionRules::stale_outputs)

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [running, waiting, skipped_waiting, step_skipped, num_waiting_for_input, num_deferred, num_loading, pause,
                            preempted_by_reset, policy, holders_first, jobs] = self;
    form(running, waiting, skipped_waiting, num_waiting_for_input, num_deferred, num_loading, pause, preempted_by_reset);
  }

 private:
  const SchedulingPolicy policy_;
  const bool holders_first_;
  Jobs& jobs_;
};

}  // namespace quire
