// Log probabilities of prompts: they come from the worker in parts, as the prompt is computed, and go out whole with the first token.
#include <algorithm>
#include <utility>

#include "engine/loop/step_loop.h"

namespace quire {

void StepLoop::make_prompt_room(Live& live) {
  live.prompt_logprobs.reset();
  if (live.sampling.prompt_logprobs.has_value())
    live.prompt_logprobs = std::make_shared<std::vector<PositionLogprobs>>(live.num_prompt_tokens - 1);
}

// What has been computed before a preemption has the same bits; those forked from a request may have given it out.
void StepLoop::take_prompt_logprobs(const WorkerResult& result) {
  for (const RequestResult& request : result.requests) {
    if (request.prompt_logprobs.empty()) continue;
    const std::shared_ptr<std::vector<PositionLogprobs>> room = requests_.at(request.id).prompt_logprobs;
    if (room == nullptr) continue;
    bool failed = false;
    for (std::size_t i = 0; i < request.prompt_logprobs.size(); ++i) {
      PositionLogprobs& place = room->at(request.first_prompt_token - 1 + i);
      if (place.entries.empty()) place = std::move(request.prompt_logprobs[i]);
      failed |= place.entries.empty();
    }
    if (failed) fail_prompt(request.id);
  }
}

// All that have the prompt's log probabilities in common.
void StepLoop::fail_prompt(RequestId id) {
  const std::shared_ptr<std::vector<PositionLogprobs>> room = requests_.at(id).prompt_logprobs;
  part_from_siblings(id, requests_.at(id));
  std::vector<RequestId> ids;
  for (const auto& [other, live] : requests_)
    if (live.prompt_logprobs == room && !live.ended) ids.push_back(other);
  std::ranges::sort(ids);
  for (const RequestId failed : ids) {
    const FinishEffect effect = core_->finish(failed, RequestStatus::finished_error, {.now = clock_->now_s()});
    end(failed, requests_.at(failed), FinishReason::error, "the model gave no finite distribution for a token of the prompt");
    if (effect == FinishEffect::retired) requests_.erase(failed);
  }
}

}  // namespace quire
