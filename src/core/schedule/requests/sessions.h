#pragma once
// Streaming sessions: requests whose input comes in parts. After each part the session stops like a request; what it put out, but the last
// token, becomes prompt, and the next part is appended. The rules are vLLM V1's _handle_stopped_request and _update_request_as_session
// (v0.19.0).
//
//   stopped -> waiting               the next input is there
//   stopped -> waiting_for_input     it is not
//   waiting_for_input -> waiting     it comes
//   waiting_for_input -> finished    no more will come
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"
#include "quire/base/error.h"

namespace quire {

// Called by the facade (a new input) and by the results (an answer is over), on the core's thread. A session keeps its blocks between two
// inputs: nobody takes them from it, so the engine bounds how long it may be silent.
class Sessions {
 public:
  Sessions(Context& context, Requests& requests, Queues& queues) : context_(context), requests_(requests), queues_(queues) {}

  [[nodiscard]] Result<void> check(const Request& session, const SessionInput& input) const;
  // Null: no more will come. False: the session, which waits for input, is over.
  bool give(Request& session, const SessionInput* input);
  // It has stopped; false: no more input will come.
  bool go_on(Request& session, RequestStatus before);

 private:
  static void cut(Request& session);
  void take_input(Request& session, const SessionUpdate& input);
  // Its states have gone on behind its tokens, or it was forked without blocks: it is looked up anew.
  [[nodiscard]] bool lacks_blocks(const Request& session) const;
  // What it has beyond its first tokens, under CureOptions::cut_sessions.
  void forget_behind(Request& session, std::int32_t num_kept) const;
  void forget_names_behind(Request& session, std::int32_t num_kept) const;

  Context& context_;
  Requests& requests_;
  Queues& queues_;
};

}  // namespace quire
