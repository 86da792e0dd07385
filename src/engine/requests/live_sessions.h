#pragma once
// Streaming sessions: at the end of an answer, where other requests end, a session waits for more of its prompt. Belongs to the engine
// thread.
//
// The core's sessions are vLLM's: the last token of an answer is not computed and is dropped, and with asynchronous scheduling a step in
// flight may continue after the answer. Here the core gets an input only when the session waits and no step in flight includes it. Tokens
// that the core would drop are put before the input, so that the context is always what the client has received.
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

  // Begins a session. Called immediately after the core has accepted the request.
  void begin(LiveRequest& live, Submission& submission);
  // Copies the state of a parent session to its child. The parent may be within an answer or after it. Inputs that the parent has not begun
  // to answer are not copied.
  void fork(RequestId id, LiveRequest& child, const LiveSession& parent);
  // Appends an input. Ignored if the session has ended. Returns whether the session continued or ended.
  bool append(SessionTokens input);
  // Called before a step's result is taken. `next_runs`: the next step has already started.
  void begin_result(bool next_runs);
  // Makes a session wait for input after its answer.
  void rest(RequestId id, LiveSession& session);
  // Continues the sessions that wait and have a next input. Returns whether a session continued or ended.
  bool advance();
  // Removes a session from the list of waiting sessions.
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
