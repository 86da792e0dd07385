// The engine thread's, between a result and the next plan. Each function ends what it concerns, with the reason for its client; the step
// and the other requests go on.
#include "engine/requests/live_failures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace quire {
namespace {

// Null: nothing has failed.
const char* failure_of(const RequestResult& result) {
  for (const SampleOutcome& sample : result.samples) {
    if (sample.status == SampleOutcome::Status::not_finite) return "the model gave no finite distribution for the next token";
    if (sample.status == SampleOutcome::Status::all_masked)
      return "the grammar, allowed_token_ids, bad_words, logit_bias, min_tokens and penalties leave no token to choose";
  }
  if (result.pooled == nullptr) return nullptr;
  // Counted to the end, without a branch: there may be millions.
  const auto is_bad = [](float value) { return !(std::abs(value) <= std::numeric_limits<float>::max()); };
  return std::ranges::count_if(*result.pooled, is_bad) == 0 ? nullptr : "the model gave a pooled output that is not finite";
}

// What it asked for cannot be drawn.
bool is_its_own_fault(const RequestResult& result) {
  return std::ranges::any_of(result.samples,
                             [](const SampleOutcome& sample) { return sample.status == SampleOutcome::Status::all_masked; });
}

}  // namespace

void LiveFailures::end_failed(const WorkerResult& result) {
  for (const RequestResult& request : result.requests) {
    const char* const failure = failure_of(request);
    if (failure == nullptr) continue;
    if (Searches::is_beam(request.id)) {
      if (const auto search = searches_.search_of(request.id)) searches_.end(*search, FinishReason::error, failure);
      continue;
    }
    Live& live = live_.at(request.id);
    if (live.ended || (live.session != nullptr && live.session->waits)) continue;
    std::optional<Error> refusal;
    if (is_its_own_fault(request)) refusal = Error{ErrorCode::invalid_argument, "", failure, "allow more tokens"};
    live_.finish(request.id, live, FinishReason::error, failure, std::move(refusal));
  }
}

void LiveFailures::end_refused(std::vector<Grammars::Failure> failures) {
  for (Grammars::Failure& failure : failures) {
    Live* live = live_.find_open(failure.id);
    if (live == nullptr) continue;
    forks_.part(failure.id);
    std::string error = failure.error.to_string();
    live_.finish(failure.id, *live, FinishReason::error, std::move(error), std::move(failure.error));
  }
}

void LiveFailures::end_unloaded(std::span<const RequestId> failed) {
  constexpr const char* kUnloaded = "the blocks of its prompt could not be loaded";
  for (const RequestId id : failed) {
    const std::optional<RequestView> view = core_.view(id);
    if (!view || view->status != RequestStatus::running) continue;
    if (const auto search = searches_.search_of(id))
      searches_.end(*search, FinishReason::error, kUnloaded);
    else if (Live* live = live_.find_open(id); live != nullptr)
      live_.finish(id, *live, FinishReason::error, kUnloaded);
  }
}

}  // namespace quire
