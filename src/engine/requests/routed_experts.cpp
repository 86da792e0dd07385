#include "engine/requests/routed_experts.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quire {

void RoutedExperts::take(const WorkerResult& result) {
  for (const RequestResult& request : result.requests) {
    const RoutedRows& rows = request.routed;
    if (rows.num_tokens() == 0) continue;
    const LiveRequest& live = live_.at(request.id);
    // Siblings share these entries, and a client may be reading them, so existing entries are not written again.
    std::vector<std::uint16_t>* const room = live.prompt_experts.get();
    if (room == nullptr) continue;
    const std::size_t known = room->size() / rows.width;
    QUIRE_CHECK(rows.first_token <= known, "a request for routed experts computes its whole prompt");
    const std::size_t end = std::min<std::size_t>(rows.first_token + rows.num_tokens(), live.num_prompt_tokens);
    if (end <= known) continue;
    const auto fresh = rows.experts.subspan((known - rows.first_token) * rows.width, (end - known) * rows.width);
    room->insert(room->end(), fresh.begin(), fresh.end());
  }
}

void RoutedExperts::give(const RequestResult& result, std::size_t num_tokens, LiveRequest& live, RequestOutput& output) {
  const RoutedRows& rows = result.routed;
  if (rows.num_tokens() == 0) return;
  QUIRE_CHECK(num_tokens <= result.samples.size() && result.samples.size() <= rows.num_tokens(),
              "the result has an expert row for each sample");
  const bool is_whole = live.prompt_experts == nullptr || live.prompt_experts->size() == std::size_t{live.num_prompt_tokens} * rows.width;
  QUIRE_CHECK(is_whole, "the experts of every prompt token are known");
  // The row before the first sample is the last row of the prompt.
  const std::size_t num_given = live.prompt_experts != nullptr ? 1 : 0;
  output.prompt_experts = std::exchange(live.prompt_experts, nullptr);
  const auto given = rows.experts.last(result.samples.size() * rows.width).subspan(num_given * rows.width);
  const auto own = given.first((num_tokens - num_given) * rows.width);
  output.routed_experts.assign(own.begin(), own.end());
}

}  // namespace quire
