#include "engine/requests/prompt_logprobs.h"

#include <memory>
#include <utility>
#include <vector>

namespace quire {

void PromptLogprobs::take(const WorkerResult& result) {
  for (const RequestResult& request : result.requests) {
    if (request.prompt_logprobs.empty()) continue;
    const std::shared_ptr<std::vector<PositionLogprobs>> room = live_.at(request.id).prompt_logprobs;
    if (room == nullptr) continue;
    bool failed = false;
    for (std::size_t i = 0; i < request.prompt_logprobs.size(); ++i) {
      PositionLogprobs& place = room->at(request.first_prompt_token - 1 + i);
      if (place.entries.empty()) place = std::move(request.prompt_logprobs[i]);
      failed |= place.entries.empty();
    }
    if (failed) fail_all(request.id);
  }
}

void PromptLogprobs::fail_all(RequestId id) {
  const std::shared_ptr<std::vector<PositionLogprobs>> room = live_.at(id).prompt_logprobs;
  forks_.part(id);
  for (const RequestId other : live_.open_ids())
    if (LiveRequest& live = live_.at(other); live.prompt_logprobs == room)
      live_.finish(other, live, FinishReason::error, "the model output for a prompt token contains NaN or Inf");
}

}  // namespace quire
