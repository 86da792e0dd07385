#include "engine/requests/live_sessions.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire {

void LiveSessions::begin(LiveRequest& live, Submission& submission) {
  live.session = std::make_unique<LiveSession>();
  live.session->num_tokens = live.num_prompt_tokens;
  live.session->inputs = {std::make_move_iterator(submission.inputs.begin()), std::make_move_iterator(submission.inputs.end())};
}

void LiveSessions::fork(RequestId id, LiveRequest& child, const LiveSession& parent) {
  child.session = std::make_unique<LiveSession>();
  child.session->num_tokens = parent.num_tokens;
  if (parent.waits) rest(id, *child.session);
}

bool LiveSessions::append(SessionTokens input) {
  LiveRequest* live = live_.find_open(input.id);
  if (live == nullptr || live->session == nullptr) return false;
  live->session->inputs.push_back(std::move(input.tokens));
  return advance_one(input.id, *live);
}

void LiveSessions::begin_result(bool next_runs) {
  ++num_applied_;
  next_runs_ = next_runs;
}

void LiveSessions::rest(RequestId id, LiveSession& session) {
  session.waits = true;
  // With asynchronous scheduling the next step has already started, and may compute tokens after the answer. The client must not receive
  // these tokens, and the core must not get the next input before that step's result.
  session.waits_until_result = num_applied_ + (next_runs_ ? 1 : 0);
  waiting_sessions_.push_back(id);
}

bool LiveSessions::advance() {
  const std::vector<RequestId> resting = waiting_sessions_;  // advance_one() changes waiting_sessions_
  bool any = false;
  for (const RequestId id : resting)
    if (LiveRequest* live = live_.find_open(id); live != nullptr) any |= advance_one(id, *live);
  return any;
}

bool LiveSessions::advance_one(RequestId id, LiveRequest& live) {
  LiveSession& session = *live.session;
  if (!session.waits || session.inputs.empty() || num_applied_ < session.waits_until_result) return false;
  if (session.inputs.front().empty()) {
    forget(id);
    live_.finish(id, live, FinishReason::stop);
  } else if (Result<void> taken = take_input(id, live); !taken) {
    forget(id);
    std::string error = taken.error().to_string();
    live_.finish(id, live, FinishReason::error, std::move(error), std::move(taken.error()));
  }
  return true;
}

Result<void> LiveSessions::take_input(RequestId id, LiveRequest& live) {
  LiveSession& session = *live.session;
  const std::optional<RequestView> view = core_.view(id);
  if (!view) return fail(ErrorCode::not_found, "session", "has ended", "begin another");
  const std::size_t num_kept = std::min<std::size_t>(view->tokens.size(), view->num_computed_tokens);
  std::vector<TokenId> tokens;
  if (num_kept < session.num_tokens) {
    const auto dropped = view->tokens.first(session.num_tokens).subspan(num_kept);
    tokens.assign(dropped.begin(), dropped.end());
  }
  const std::vector<TokenId>& given = session.inputs.front();
  tokens.insert(tokens.end(), given.begin(), given.end());
  SessionInput input{.tokens = tokens,
                     .arrival_time = live_.now_s(),
                     .min_tokens = live.sampling.min_tokens,
                     .stop_token_ids = live.sampling.stop_token_ids,
                     .repetition = live.sampling.repetition,
                     .sampling = &live.sampling};
  if (!live.sampling.ignore_eos) input.eos_ids = live_.eos_ids();
  if (Result<void> continued = core_.continue_session(id, &input, {.now = input.arrival_time}); !continued) {
    continued.error().field = "session";
    return continued;
  }
  if (live.structured_output != nullptr) live_.grammars()->restart(id);
  session.num_tokens += given.size();
  session.inputs.pop_front();
  session.waits = false;
  forget(id);
  live.arrival_s = input.arrival_time;
  live.last_token_s = -1.0;
  return {};
}

}  // namespace quire
