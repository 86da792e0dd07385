// Requests that cannot go on: what the model gave, what their grammar costs, what was not loaded.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/loop/step_loop.h"

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

// Before apply(), so that the core drops the token that stands for the failure.
void StepLoop::end_failed(const WorkerResult& result) {
  for (const RequestResult& request : result.requests) {
    const char* const failure = failure_of(request);
    if (failure == nullptr) continue;
    if (Searches::is_beam(request.id)) {
      if (const auto search = searches_.search_of(request.id)) end_search(*search, FinishReason::error, failure);
      continue;
    }
    Live& live = requests_.at(request.id);
    if (live.ended || (live.session != nullptr && live.session->waits)) continue;
    core_->finish(request.id, RequestStatus::finished_error, {.now = clock_->now_s()});
    end(request.id, live, FinishReason::error, failure);
    if (is_its_own_fault(request)) outgoing_.back().output.refusal = Error{ErrorCode::invalid_argument, "", failure, "allow more tokens"};
  }
}

void StepLoop::end_refused(std::vector<Grammars::Failure> failures) {
  for (Grammars::Failure& failure : failures) {
    const auto found = requests_.find(failure.id);
    if (found == requests_.end() || found->second.ended) continue;
    Live& live = found->second;
    part_from_siblings(failure.id, live);
    const FinishEffect effect = core_->finish(failure.id, RequestStatus::finished_error, {.now = clock_->now_s()});
    end(failure.id, live, FinishReason::error, failure.error.to_string());
    outgoing_.back().output.refusal = std::move(failure.error);
    if (effect == FinishEffect::retired) requests_.erase(found);
  }
}

// What ran on blocks that were not loaded has computed nothing good. Who only waited for them is computed instead.
void StepLoop::end_unloaded(std::span<const RequestId> failed) {
  constexpr const char* kUnloaded = "the blocks of its prompt could not be loaded";
  for (const RequestId id : failed) {
    const std::optional<RequestView> view = core_->view(id);
    if (!view || view->status != RequestStatus::running) continue;
    if (const auto search = searches_.search_of(id)) {
      end_search(*search, FinishReason::error, kUnloaded);
      continue;
    }
    const auto found = requests_.find(id);
    if (found == requests_.end() || found->second.ended) continue;
    const FinishEffect effect = core_->finish(id, RequestStatus::finished_error, {.now = clock_->now_s()});
    end(id, found->second, FinishReason::error, kUnloaded);
    if (effect == FinishEffect::retired) requests_.erase(found);
  }
}

}  // namespace quire
