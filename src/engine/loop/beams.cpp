// The step loop's part in beam searches (searches.h): their answers are requests that only clients know, and their beams requests that only
// the core knows.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/loop/step_loop.h"
#include "engine/stats/histogram.h"

namespace quire {

void StepLoop::add_search(Submission submission) {
  for (std::uint32_t i = 0; i < submission.request.n; ++i) make_live(sibling(submission, i), submission, i).search = submission.id;
  searches_.add(submission, clock_->now_s());
  look_for_news();
  for (const Ending& ending : submission.ended) finish(ending.id, ending.reason);
}

void StepLoop::admit_search(RequestId search, const FirstAdmission& admission, double now_s) {
  Live& first = requests_.at(search);
  if (std::exchange(first.is_admitted, true)) return;
  for (std::uint32_t i = 0; i < searches_.width(search); ++i) {
    const RequestId id{search.value + i};
    requests_.at(id).num_cached_tokens = admission.num_cached_tokens;
    admitted_.push_back(id);
  }
  observe(stats_.queue_time_s, now_s - first.arrival_s);
}

void StepLoop::take_offer(const RequestUpdate& update, const PositionLogprobs& sampled) {
  QUIRE_CHECK(update.tokens.size() == 1 && update.session_waits, "a beam waits after each token");
  searches_.offer(update.id, sampled);
}

void StepLoop::advance_searches(double now_s) {
  for (SearchStep& step : searches_.advance(now_s)) {
    token_times(requests_.at(step.search), step.num_tokens, now_s);
    for (std::uint32_t i = 0; i < step.best.size(); ++i) answer({step.search.value + i}, std::move(step.best[i]));
  }
}

void StepLoop::answer(RequestId id, BeamSearch::Hypothesis found) {
  const auto live = requests_.find(id);
  RequestOutput output;
  output.id = id;
  output.finished = true;
  output.reason = found.by_eos ? FinishReason::stop : FinishReason::length;
  output.stop_token = found.by_eos ? found.tokens.back() : -1;
  output.tokens = std::move(found.tokens);
  output.logprobs = std::move(found.logprobs);
  output.num_cached_tokens = live->second.num_cached_tokens;
  const FinishReason reason = output.reason;
  send(live->second.sink, std::move(output));
  count_end(id, live->second, reason);
  requests_.erase(live);
}

// All its answers end.
void StepLoop::end_search(RequestId search, FinishReason reason, const std::string& error) {
  const std::uint32_t width = searches_.width(search);
  searches_.end(search, clock_->now_s());
  for (std::uint32_t i = 0; i < width; ++i) {
    const RequestId id{search.value + i};
    end(id, requests_.at(id), reason, error);
    requests_.erase(id);
  }
}

}  // namespace quire
