#pragma once
// Streaming sessions: requests that wait for more of their prompt where other requests end. Belongs to the engine thread.
//
// The core's sessions are vLLM's: the last token of an answer is not computed and is dropped, and with asynchronous scheduling a step in
// flight may continue after the answer. Here the core gets an input only when the session waits and no step in flight includes it. The
// tokens that the core would drop are put before the input, so the context is always what the client has seen.
#include <cstdint>
#include <vector>

#include "engine/requests/inbox.h"
#include "engine/requests/live_requests.h"
#include "quire/base/error.h"
#include "quire/core.h"

namespace quire {

class LiveSessions {
 public:
  LiveSessions(Core& core, LiveRequests& live) : core_(core), live_(live) {}

  // Called when the core has just taken the session.
  void begin(LiveRequest& live, Submission& submission);
  // Gives a child the state of its parent: inside an answer, or after it. The parent's inputs that have not begun are not copied.
  void fork(RequestId id, LiveRequest& child, const LiveSession& parent);
  // Appends an input; ignored if the session has ended. Returns whether the session continued or ended.
  bool append(SessionTokens input);
  // Called before a step's result is taken. `next_runs`: the step after it has started.
  void begin_result(bool next_runs);
  // Makes a session wait for input after its answer.
  void rest(RequestId id, LiveSession& session);
  // Continues the sessions that have their next input. Returns whether one continued or ended.
  bool advance();
  // Removes a session from the waiting ones.
  void forget(RequestId id) { std::erase(waiting_sessions_, id); }

 private:
  bool advance_one(RequestId id, LiveRequest& live);
  Result<void> take_input(RequestId id, LiveRequest& live);

  Core& core_;
  LiveRequests& live_;
  std::vector<RequestId> waiting_sessions_;  // sessions that wait for input
  std::uint64_t num_applied_ = 0;            // number of begin_result() calls
  bool next_runs_ = false;                   // argument of the last begin_result()
};

}  // namespace quire
