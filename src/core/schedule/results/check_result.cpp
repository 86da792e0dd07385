// Checks whether a result can be taken. vLLM trusts its workers and stops on their mistakes; here an error is returned before anything
// changes.
#include <fmt/format.h>

#include <algorithm>

#include "core/schedule/results/results.h"

namespace quire {

namespace {

std::unexpected<Error> mismatch(const char* field, std::string message) {
  return fail(ErrorCode::invalid_argument, field, std::move(message), "pass the result of the oldest plan that is not applied yet");
}

// Returns the number of leading entries that belong to the request.
std::size_t count_of(std::span<const SampledToken> sampled, RequestId id) {
  const auto end = std::ranges::find_if(sampled, [id](const SampledToken& s) { return s.id != id; });
  return static_cast<std::size_t>(end - sampled.begin());
}

Result<void> check_tokens(const PlanArena& arena, const StepResult& result) {
  std::span<const SampledToken> sampled = result.sampled;
  std::span<const RequestId> pooled = result.pooled;
  for (std::size_t i = 0; i < arena.requests().size(); ++i) {
    const Request& request = *arena.requests()[i];
    const ScheduledRequest& scheduled = arena.plan().scheduled[i];
    const std::size_t num_tokens = count_of(sampled, request.id);
    if (num_tokens > (scheduled.samples && !request.pooling ? 1 + scheduled.drafts.size() : 0)) {
      return mismatch("sampled", fmt::format("has {} tokens for request {}, which has {} draft tokens{}", num_tokens, request.id.value,
                                             scheduled.drafts.size(), scheduled.samples ? "" : " and does not sample"));
    }
    sampled = sampled.subspan(num_tokens);
    if (!pooled.empty() && pooled.front() == request.id) {
      if (!request.pooling) return mismatch("pooled", fmt::format("request {} is not a pooling request", request.id.value));
      pooled = pooled.subspan(1);
    }
  }
  if (!sampled.empty()) return mismatch("sampled", fmt::format("request {} is not at this position of the plan", sampled.front().id.value));
  if (!pooled.empty()) return mismatch("pooled", fmt::format("request {} is not at this position of the plan", pooled.front().value));
  return {};
}

}  // namespace

Result<void> Results::check(const PlanRing& plans, const StepResult& result) {
  if (plans.size() == 0) return mismatch("step", fmt::format("is {}, but no plan is outstanding", result.step.value));
  const PlanArena& arena = plans.at(0);
  if (result.step != arena.plan().step)
    return mismatch("step", fmt::format("is {}, but the result of step {} comes next", result.step.value, arena.plan().step.value));
  return check_tokens(arena, result);
}

}  // namespace quire
