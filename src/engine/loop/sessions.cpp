// Streaming sessions: requests that wait for more of their prompt where others end.
//
// The core's sessions are vLLM's: the last token of an answer has not been computed and is dropped, and with asynchronous scheduling a step
// may be under way that goes on behind the answer. Here an input is given to the core once the session waits and nothing of it is under
// way, with what the core would drop before it: so the context is what the client has seen, whenever the input came.
#include <algorithm>
#include <utility>

#include "engine/loop/step_loop.h"

namespace quire {

void StepLoop::add_session(Live& live, Submission& submission) {
  live.session = std::make_unique<Session>();
  live.session->num_tokens = live.num_prompt_tokens;
  live.session->inputs = {std::make_move_iterator(submission.inputs.begin()), std::make_move_iterator(submission.inputs.end())};
}

void StepLoop::append(SessionTokens input) {
  const auto found = requests_.find(input.id);
  if (found == requests_.end() || found->second.ended || found->second.session == nullptr) return;
  found->second.session->inputs.push_back(std::move(input.tokens));
  advance_session(input.id, found->second);
}

void StepLoop::rest(RequestId id, Session& session) {
  session.waits = true;
  session.waits_until = num_applied_ + (running_.has_value() ? 1 : 0);
  resting_.push_back(id);
}

void StepLoop::advance_sessions() {
  const std::vector<RequestId> resting = resting_;  // some go on
  for (const RequestId id : resting)
    if (const auto found = requests_.find(id); found != requests_.end() && !found->second.ended) advance_session(id, found->second);
}

void StepLoop::advance_session(RequestId id, Live& live) {
  Session& session = *live.session;
  if (!session.waits || session.inputs.empty() || num_applied_ < session.waits_until) return;
  if (session.inputs.front().empty()) return finish(id, FinishReason::stop);
  look_for_news();
  Result<void> taken = take_input(id, live);
  if (taken) return;
  std::erase(resting_, id);
  const FinishEffect effect = core_->finish(id, RequestStatus::finished_error, {.now = clock_->now_s()});
  end(id, live, FinishReason::error, taken.error().to_string());
  outgoing_.back().output.refusal = std::move(taken.error());
  if (effect == FinishEffect::retired) requests_.erase(id);
}

Result<void> StepLoop::take_input(RequestId id, Live& live) {
  Session& session = *live.session;
  const std::optional<RequestView> view = core_->view(id);
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
                     .arrival_time = clock_->now_s(),
                     .min_tokens = live.sampling.min_tokens,
                     .stop_token_ids = live.sampling.stop_token_ids,
                     .sampling = &live.sampling};
  if (!live.sampling.ignore_eos) input.eos_ids = options_.eos_ids;
  if (Result<void> continued = core_->continue_session(id, &input, {.now = input.arrival_time}); !continued) {
    continued.error().field = "session";
    return continued;
  }
  session.num_tokens += given.size();
  session.inputs.pop_front();
  session.waits = false;
  std::erase(resting_, id);
  live.arrival_s = input.arrival_time;
  live.last_token_s = -1.0;
  return {};
}

}  // namespace quire
