#include "lab/replay/recorded_workload.h"

#include <algorithm>
#include <utility>

#include "core/journal/left_out.h"

namespace quire {

void RecordedWorkload::add(const NewRequest& request, const StepInput& input) {
  if (request.resumable) lacks("sessions");
  if (request.pooling) lacks("vectors");
  if (request.structured_output) lacks("grammars");
  asks_for_tools |= request.tags != nullptr && !request.tags->job.empty() && request.tags->tool.empty();
  CallBytes::add(request, input);
  arrivals.push_back({.id = request.id,
                      .time_s = input.now,
                      .num_prompt_tokens = request.prompt.size(),
                      .has_arrival_time = request.arrival_time > 0.0,
                      .call = std::exchange(out.bytes, {})});
  if (!request.prompt.empty() && request.prompt.front() == left_out()) added_ = request.id;
}

void RecordedWorkload::answered(std::uint64_t /*answer*/) {
  if (added_) take_names(*added_);
  added_.reset();
}

// They grow while a request runs. A block that only its last token fills has never been computed, so nobody could have found it.
void RecordedWorkload::take_names(RequestId id) {
  const auto view = core_ != nullptr ? core_->view(id) : std::nullopt;
  if (!view) return;
  std::vector<std::uint8_t>& known = names[id];
  if (view->block_hashes.size() > known.size()) known.assign(view->block_hashes.begin(), view->block_hashes.end());
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
    if (update.finished && update.status == RequestStatus::finished_repetition) repeated.insert(update.id);
    if (names.contains(update.id)) take_names(update.id);
  }
}

}  // namespace quire
