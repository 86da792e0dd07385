#pragma once
// Streaming sessions: requests whose input comes in several parts. After each part the session stops like a request. Its outputs except the
// last token become part of the prompt, and the next input is appended. The rules are vLLM V1's _handle_stopped_request and
// _update_request_as_session (v0.19.0).
//
//   stopped -> waiting               the next input is queued
//   stopped -> waiting_for_input     no input is queued
//   waiting_for_input -> waiting     the next input arrives
//   waiting_for_input -> finished    no more input will come
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/requests.h"
#include "quire/base/error.h"

namespace quire {

// Called on the core's thread by Core::continue_session() and by Results when an answer ends. A session keeps its blocks between two
// inputs, unless they are reclaimed (block_reclaimer.h). quire's server limits how long a session may wait for input.
class Sessions {
 public:
  Sessions(Context& context, Requests& requests, Queues& queues) : context_(context), requests_(requests), queues_(queues) {}

  [[nodiscard]] Result<void> check(const Request& session, const SessionInput& input) const;
  // Adds an input to the session; null: no more will come. Returns false if the session was waiting for input and must end.
  bool give(Request& session, const SessionInput* input);
  // Called when the session has stopped. Begins the next queued input, or waits for it. Returns false if no more input will come or the
  // next one does not fit.
  bool advance(Request& session, RequestStatus before);

 private:
  static void cut(Request& session);
  void take_input(Request& session, const SessionUpdate& input);
  // Returns whether the session has computed tokens without blocks, or states that are ahead of its tokens. If so, it is looked up again.
  [[nodiscard]] bool has_missing_blocks(const Request& session) const;
  // Drop the session's tokens and hashes after the first `num_kept` tokens (FixOptions::cut_sessions,
  // DecisionRules::truncates_session_answers).
  void forget_after(Request& session, std::int32_t num_kept) const;
  void forget_hashes_after(Request& session, std::int32_t num_kept) const;

  Context& context_;
  Requests& requests_;
  Queues& queues_;
};

}  // namespace quire
