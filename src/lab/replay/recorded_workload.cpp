#include "lab/replay/recorded_workload.h"

#include <algorithm>
#include <utility>

namespace quire {

void RecordedWorkload::add(const NewRequest& request, const StepInput& input) {
  if (request.resumable) lacks("sessions");
  if (request.pooling) lacks("vectors");
  if (request.structured_output) lacks("grammars");
  asks_for_tools |= request.tags != nullptr && !request.tags->job.empty() && request.tags->tool.empty();
  CallBytes::add(request, input);
  arrivals.push_back({.id = request.id, .time_s = input.now, .call = std::exchange(out.bytes, {})});
}

void RecordedWorkload::finish(RequestId id, RequestStatus /*status*/, const StepInput& input) {
  ended_s.emplace(id, input.now);
}

void RecordedWorkload::finish(std::span<const RequestId> ids, RequestStatus /*status*/, const StepInput& input) {
  for (const RequestId id : ids) ended_s.emplace(id, input.now);
}

void RecordedWorkload::schedule(const StepInput& input) {
  planned_s_.push_back(input.now);
}

// Steps follow each other: one that was planned before the last was over took from that end on.
void RecordedWorkload::apply(const StepResult& result, const StepInput& input) {
  const double planned_s = planned_s_.empty() ? input.now : planned_s_.front();
  if (!planned_s_.empty()) planned_s_.pop_front();
  if (!result.sampled.empty()) step_s.push_back(std::max(0.0, input.now - std::max(applied_s_, planned_s)));
  applied_s_ = input.now;
}

void RecordedWorkload::applied(const StepOutcome* outcome) {
  if (outcome == nullptr) return;
  for (const RequestUpdate& update : outcome->updates) {
    std::vector<TokenId>& to = tokens[update.id];
    to.insert(to.end(), update.tokens.begin(), update.tokens.end());
  }
}

}  // namespace quire
