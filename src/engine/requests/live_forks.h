#pragma once
// Forks requests. Siblings (n > 1) share a prompt. The first sibling, the leader, is added to the core, and the others are forked from it
// when its prompt is planned. Children of a client's fork() start from a request that already has outputs. Belongs to the engine thread.
//
// States of a sibling, and the function that moves it:
//   expected   unknown to the core: the leader's prompt is not planned yet         expect
//   live       forked, or added alone if the leader ended or could not be forked   planned, part
//   ended      by its client, or because the leader's blocks could not be loaded   end_expected, end_siblings
#include <cstdint>
#include <string>
#include <vector>

#include "engine/requests/inbox.h"
#include "engine/requests/live_requests.h"
#include "engine/requests/live_sessions.h"
#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {

class LiveForks {
 public:
  LiveForks(Core& core, LiveRequests& live, LiveSessions& sessions) : core_(core), live_(live), sessions_(sessions) {}

  // Registers the siblings of the submission's first request, which must be live.
  void expect(const Submission& submission);
  // Forks the siblings of each leader that computes the last token of its prompt in this plan. (The whole prompt is computed before the
  // next plan runs.)
  void planned(const StepPlan& plan);
  // Adds the siblings of a leader as separate requests, because the leader ends before its prompt was planned.
  void part(RequestId leader);
  // Ends the expected siblings of a leader that the core has ended because the blocks that they would share could not be loaded.
  void end_siblings(RequestId leader, const std::string& error);
  // Ends an expected sibling.
  void end_expected(RequestId id, FinishReason reason);
  // Forks children from a request. A child's first output contains the parent's outputs so far. If the fork fails, the child gets only one
  // output, which contains the error.
  void fork(const Fork& fork);
  // Sends the last outputs of children whose fork was cancelled.
  void cancel(const Fork& fork, FinishReason reason);

  [[nodiscard]] std::uint32_t num_expected();

 private:
  void fork_sibling(RequestId leader, RequestId id);
  void add_unforked(RequestId id, const RequestView& leader);
  Result<void> fork_one(const Fork& fork, std::uint32_t number, LiveRequest& child);

  Core& core_;
  LiveRequests& live_;
  LiveSessions& sessions_;
  std::vector<RequestId> leaders_;  // requests with siblings that are not forked yet
};

}  // namespace quire
