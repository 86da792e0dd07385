#include "engine/requests/live_searches.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace quire {

void LiveSearches::add(Submission& submission) {
  for (std::uint32_t i = 0; i < submission.request.n; ++i) live_.make(sibling(submission, i), submission, i).search = submission.id;
  searches_.add(submission, live_.at(submission.id).adapter, live_.now_s());
}

void LiveSearches::admit(RequestId search, const FirstAdmission& admission, double now_s) {
  LiveRequest& first = live_.at(search);
  // Counts the first admission of a search only once, although each of its beams is admitted.
  if (std::exchange(first.is_admitted, true)) return;
  for (std::uint32_t i = 0; i < searches_.width(search); ++i) {
    const RequestId id{search.value + i};
    live_.at(id).num_cached_tokens = admission.num_cached_tokens;
    live_.note_admission(id);
  }
  live_.counts().admitted(now_s - first.arrival_s);
}

void LiveSearches::take_offer(const RequestUpdate& update, const PositionLogprobs& sampled) {
  QUIRE_CHECK(update.tokens.size() == 1 && update.session_waits, "a beam waits after each token");
  searches_.offer(update.id, sampled);
}

void LiveSearches::advance(double now_s) {
  for (SearchStep& step : searches_.advance(now_s)) {
    live_.note_tokens(step.search, live_.at(step.search), step.num_tokens, now_s);
    for (std::uint32_t i = 0; i < step.best.size(); ++i) answer({step.search.value + i}, std::move(step.best[i]));
    if (step.best.empty()) continue;
    for (auto i = static_cast<std::uint32_t>(step.best.size()); i < step.width; ++i)
      end_unanswered({step.search.value + i}, step.best.size());
  }
}

void LiveSearches::end_unanswered(RequestId id, std::size_t num_found) {
  Error error{ErrorCode::invalid_argument, "n", fmt::format("the grammar allows only {} answers", num_found), "request at most that many"};
  std::string text = error.to_string();
  live_.end(id, live_.at(id), FinishReason::error, std::move(text), std::move(error));
  live_.forget(id);
}

void LiveSearches::answer(RequestId id, BeamSearch::Hypothesis found) {
  LiveRequest& live = live_.at(id);
  RequestOutput output;
  output.id = id;
  output.finished = true;
  output.reason = found.by_eos ? FinishReason::stop : FinishReason::length;
  output.stop_token = found.by_eos ? found.tokens.back() : -1;
  output.tokens = std::move(found.tokens);
  output.logprobs = std::move(found.logprobs);
  output.num_cached_tokens = live.num_cached_tokens;
  const FinishReason reason = output.reason;
  live_.send(live, std::move(output));
  live_.note_end(id, live, reason);
  live_.forget(id);
}

void LiveSearches::end(RequestId search, FinishReason reason, const std::string& error, const std::optional<Error>& refusal) {
  const std::uint32_t width = searches_.width(search);
  searches_.end(search, live_.now_s());
  for (std::uint32_t i = 0; i < width; ++i) {
    const RequestId id{search.value + i};
    live_.end(id, live_.at(id), reason, error, refusal);
    live_.forget(id);
  }
}

}  // namespace quire
