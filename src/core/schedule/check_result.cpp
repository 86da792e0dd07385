// What a result must be to be taken. vLLM trusts its workers and stops where they err; here nothing has changed when an error is returned.
#include <fmt/format.h>

#include <algorithm>

#include "core/schedule/state.h"

namespace quire {
namespace {

std::unexpected<Error> mismatch(const char* field, std::string message) {
  return fail(ErrorCode::invalid_argument, field, std::move(message), "give the result of the oldest plan that is not applied yet");
}

// The number of leading entries that belong to the request.
std::size_t count_of(std::span<const SampledToken> sampled, RequestId id) {
  const auto end = std::ranges::find_if(sampled, [id](const SampledToken& s) { return s.id != id; });
  return static_cast<std::size_t>(end - sampled.begin());
}

}  // namespace

Result<void> Core::State::check_result(const StepResult& result) const {
  if (plans.size() == 0) return mismatch("step", fmt::format("a result of step {}, but no plan is outstanding", result.step.value));
  const PlanArena& arena = plans.at(0);
  if (result.step != arena.plan().step)
    return mismatch("step", fmt::format("a result of step {}, but step {} comes next", result.step.value, arena.plan().step.value));
  if (Result<void> checked = check_tokens(arena, result); !checked) return checked;
  if (Result<void> checked = check_completions(result); !checked) return checked;
  return result.has_connector_output ? check_transfers(result) : Result<void>{};
}

Result<void> Core::State::check_tokens(const PlanArena& arena, const StepResult& result) const {
  std::span<const SampledToken> sampled = result.sampled;
  std::span<const RequestId> pooled = result.pooled;
  for (std::size_t i = 0; i < arena.requests().size(); ++i) {
    const Request& request = *arena.requests()[i];
    const ScheduledRequest& scheduled = arena.plan().scheduled[i];
    const std::size_t num_tokens = count_of(sampled, request.id);
    if (num_tokens > (scheduled.samples && !request.pooling ? 1 + scheduled.drafts.size() : 0)) {
      return mismatch("sampled", fmt::format("{} tokens of request {}, which was given {} drafts{}", num_tokens, request.id.value,
                                             scheduled.drafts.size(), scheduled.samples ? "" : " and does not sample"));
    }
    sampled = sampled.subspan(num_tokens);
    if (!pooled.empty() && pooled.front() == request.id) {
      if (!request.pooling) return mismatch("pooled", fmt::format("request {} is not a pooling request", request.id.value));
      pooled = pooled.subspan(1);
    }
  }
  if (!sampled.empty()) return mismatch("sampled", fmt::format("request {} is not in the plan at this place", sampled.front().id.value));
  if (!pooled.empty()) return mismatch("pooled", fmt::format("request {} is not in the plan at this place", pooled.front().value));
  return {};
}

Result<void> Core::State::check_transfers(const StepResult& result) const {
  for (RequestId id : result.finished_receiving) {
    const Request* request = table.find(id);
    if (request == nullptr || !(HoldLedger::holds(*request, Holder::transfer) || request->status == RequestStatus::waiting_for_remote_kv))
      return mismatch("finished_receiving", fmt::format("request {} does not wait for blocks", id.value));
  }
  for (RequestId id : result.finished_sending) {
    const Request* request = table.find(id);
    if (request == nullptr || !HoldLedger::holds(*request, Holder::transfer))
      return mismatch("finished_sending", fmt::format("request {} is not a finished one whose blocks are kept", id.value));
  }
  if (!result.invalid_blocks.empty() && kv.num_groups() != 1) {
    return fail(ErrorCode::unsupported, "invalid_blocks", fmt::format("there are {} cache groups", kv.num_groups()),
                "failed loads can be mended with one cache group only");
  }
  for (BlockId block : result.invalid_blocks)
    if (block.value >= kv.pool().num_blocks())
      return mismatch("invalid_blocks", fmt::format("block {} of {}", block.value, kv.pool().num_blocks()));
  return {};
}

}  // namespace quire
