#pragma once
// Requests that go on from another one: siblings, which have a prompt in common and leave the first when it is planned, and children of one
// that puts out tokens already. Belongs to the engine thread.
//
//   expected   the core does not know it: its elder's prompt is not planned yet   expect
//   live       forked, or added alone where the elder ended or could not be forked
#include <cstdint>
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

  // All but the first of the submission, which is live.
  void expect(const Submission& submission);
  // Those of each that computes the last token of its prompt in this plan are forked: what it has then, it has before the next plan runs.
  void planned(const StepPlan& plan);
  // They go on without the one that ends before its prompt was planned.
  void part(RequestId elder);
  // Ends one that is expected.
  void end_expected(RequestId id, FinishReason reason);
  // Each child's first output is what the parent has put out; where there is none to fork, it is its last.
  void fork(const Fork& fork);
  // Their last outputs, without having been forked.
  void cancel(const Fork& fork, FinishReason reason);

  [[nodiscard]] std::uint32_t num_expected();

 private:
  void fork_sibling(RequestId elder, RequestId id);
  void add_alone(RequestId id, const RequestView& elder);
  Result<void> fork_one(const Fork& fork, std::uint32_t number, Live& child);

  Core& core_;
  LiveRequests& live_;
  LiveSessions& sessions_;
  std::vector<RequestId> elders_;  // have siblings that are not forked yet
};

}  // namespace quire
