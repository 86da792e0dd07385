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

// Where what it asked for cannot be drawn.
std::optional<Error> refusal_of(const RequestResult& result, const char* failure) {
  const auto is_masked = [](const SampleOutcome& sample) { return sample.status == SampleOutcome::Status::all_masked; };
  if (std::ranges::none_of(result.samples, is_masked)) return std::nullopt;
  return Error{ErrorCode::invalid_argument, "", failure, "allow more tokens"};
}

}  // namespace

void LiveFailures::end_failed(const WorkerResult& result) {
  std::optional<std::vector<RequestId>> spoiled;
  for (const RequestResult& request : result.requests) {
    const char* const failure = failure_of(request);
    if (failure == nullptr) continue;
    if (!spoiled.has_value()) spoiled = core_.spoiled_by(result.step);
    const std::optional<RequestView> view = core_.view(request.id);
    if (std::ranges::find(*spoiled, request.id) != spoiled->end() || (view && view->discard_latest_async_tokens)) continue;
    std::optional<Error> refusal = refusal_of(request, failure);
    // Where the model gave no number, a block that it read may hold none either, and would end every request that finds it.
    if (!refusal) core_.forget_blocks(request.id);
    if (Searches::is_beam(request.id)) {
      if (const auto search = searches_.search_of(request.id)) searches_.end(*search, FinishReason::error, failure, refusal);
      continue;
    }
    Live& live = live_.at(request.id);
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
    Live* live = live_.find_open(failure.id);
    if (live == nullptr) continue;
    forks_.part(failure.id);
    std::string error = failure.error.to_string();
    live_.finish(failure.id, *live, FinishReason::error, std::move(error), std::move(failure.error));
  }
}

void LiveFailures::end_unloaded(RequestId id) {
  constexpr const char* kUnloaded = "the blocks of its prompt could not be loaded";
  if (const auto search = searches_.search_of(id)) return searches_.end(*search, FinishReason::error, kUnloaded);
  Live* live = live_.find_open(id);
  if (live == nullptr) return;
  forks_.part(id);
  live_.end(id, *live, FinishReason::error, kUnloaded);
}

}  // namespace quire
