#pragma once
// Streaming sessions: requests that wait for more of their prompt where others end. Belongs to the engine thread.
//
// The core's sessions are vLLM's: the last token of an answer has not been computed and is dropped, and with asynchronous scheduling a step
// may be under way that goes on behind the answer. Here an input is given to the core once the session waits and nothing of it is under
// way, with what the core would drop before it: so the context is what the client has seen, whenever the input came.
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

  // The core has just taken it.
  void begin(Live& live, Submission& submission);
  // It is where its parent is: in the midst of an answer, or behind it. What its parent was given and has not begun is not the child's.
  void fork(RequestId id, Live& child, const LiveSession& parent);
  // More of its prompt; nothing to one that has ended. Whether the session went on, or ended.
  bool append(SessionTokens input);
  // A step's result is about to be taken; whether the step behind it has been begun.
  void begin_result(bool next_runs);
  // Its answer is over: it waits.
  void rest(RequestId id, LiveSession& session);
  // Those that have their next input. Whether one went on, or ended.
  bool advance();
  // It ends.
  void forget(RequestId id) { std::erase(resting_, id); }

 private:
  bool advance_one(RequestId id, Live& live);
  Result<void> take_input(RequestId id, Live& live);

  Core& core_;
  LiveRequests& live_;
  std::vector<RequestId> resting_;  // they wait for input
  std::uint64_t num_applied_ = 0;   // results
  bool next_runs_ = false;          // as of the last one
};

}  // namespace quire
