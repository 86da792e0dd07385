// Ends failed requests with the reason for their clients. Called on the engine thread, between a result and the next plan. The step and the
// other requests continue.
#include "engine/requests/live_failures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace quire {
namespace {

// Returns the reason why the request failed; null: it has not failed.
const char* failure_of(const RequestResult& result) {
  for (const SampleOutcome& sample : result.samples) {
    if (sample.status == SampleOutcome::Status::not_finite) return "the model output for the next token contains NaN or Inf";
    if (sample.status == SampleOutcome::Status::all_masked)
      return "the grammar, allowed_token_ids, bad_words, logit_bias, min_tokens and penalties leave no token to sample";
  }
  if (result.pooled == nullptr) return nullptr;
  // Counts invalid values without a branch, because there may be millions of values.
  const auto is_bad = [](float value) { return !(std::abs(value) <= std::numeric_limits<float>::max()); };
  return std::ranges::count_if(*result.pooled, is_bad) == 0 ? nullptr : "the pooled output of the model contains NaN or Inf";
}

// Returns the error of a request for which no token is left to sample; nullopt for other failures.
std::optional<Error> refusal_of(const RequestResult& result, const char* failure) {
  const auto is_masked = [](const SampleOutcome& sample) { return sample.status == SampleOutcome::Status::all_masked; };
  if (std::ranges::none_of(result.samples, is_masked)) return std::nullopt;
  return Error{ErrorCode::invalid_argument, "", failure, "allow more tokens"};
}

}  // namespace

void LiveFailures::end_failed(const WorkerResult& result) {
  std::optional<std::vector<RequestId>> invalidated;
  for (const RequestResult& request : result.requests) {
    const char* const failure = failure_of(request);
    if (failure == nullptr) continue;
    if (!invalidated.has_value()) invalidated = core_.requests_invalidated_by(result.step);
    const std::optional<RequestView> view = core_.view(request.id);
    if (std::ranges::find(*invalidated, request.id) != invalidated->end() || (view && view->discard_latest_async_tokens)) continue;
    std::optional<Error> refusal = refusal_of(request, failure);
    // After a non-finite output, a block that the request has read may contain NaN or Inf, and every request that hits the block would
    // fail.
    if (!refusal) core_.forget_blocks(request.id);
    if (BeamSearches::is_beam(request.id)) {
      if (const auto search = searches_.search_of(request.id)) searches_.end(*search, FinishReason::error, failure, refusal);
      continue;
    }
    LiveRequest& live = live_.at(request.id);
    if (live.ended || (live.session != nullptr && live.session->waits)) continue;
    live_.finish(request.id, live, FinishReason::error, failure, std::move(refusal));
  }
}

void LiveFailures::end_refused(std::vector<Grammars::Failure> failures) {
  for (Grammars::Failure& failure : failures) {
    if (const auto search = searches_.search_of(failure.id)) {
      searches_.end(*search, FinishReason::error, failure.error.to_string(), failure.error);
      continue;
    }
    LiveRequest* live = live_.find_open(failure.id);
    if (live == nullptr) continue;
    forks_.part(failure.id);
    std::string error = failure.error.to_string();
    live_.finish(failure.id, *live, FinishReason::error, std::move(error), std::move(failure.error));
  }
}

void LiveFailures::end_failed_load(RequestId id) {
  constexpr const char* kUnloaded = "the KV cache blocks of the prompt could not be loaded";
  if (const auto search = searches_.search_of(id)) return searches_.end(*search, FinishReason::error, kUnloaded);
  LiveRequest* live = live_.find_open(id);
  if (live == nullptr) return;
  forks_.end_siblings(id, kUnloaded);
  live_.end(id, *live, FinishReason::error, kUnloaded);
}

}  // namespace quire
