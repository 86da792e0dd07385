#include "lab/replay/recorded_workload.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "core/journal/call_bytes.h"
#include "core/journal/left_out.h"

namespace quire {

void RecordedWorkload::on_call(const CoreCall& call) {
  std::visit([this](const auto& one) { take(one); }, call);
}

void RecordedWorkload::take(const core_call::Add& call) {
  const NewRequest& request = call.request;
  if (request.resumable) set_missing("sessions");
  if (request.pooling) set_missing("pooling requests");
  if (request.structured_output) set_missing("grammars");
  needs_tool_namer |= request.tags != nullptr && !request.tags->job.empty() && request.tags->tool.empty();
  ByteWriter bytes;
  write_call(bytes, call);
  arrivals.push_back({.id = request.id,
                      .time_s = call.input.now,
                      .num_prompt_tokens = request.prompt.size(),
                      .has_arrival_time = request.arrival_time > 0.0,
                      .call = std::move(bytes.bytes)});
  if (!request.prompt.empty() && request.prompt.front() == left_out()) added_ = request.id;
}

void RecordedWorkload::answered(std::uint64_t /*answer*/) {
  if (added_) take_block_hashes(*added_);
  added_.reset();
}

// Stores the request's block hashes, of which there are more as it runs. A block that only the last token fills was never computed, so no
// other request could hit it.
void RecordedWorkload::take_block_hashes(RequestId id) {
  const auto view = core_ != nullptr ? core_->view(id) : std::nullopt;
  if (!view) return;
  std::vector<std::uint8_t>& known = names[id];
  if (view->block_hashes.size() > known.size()) known.assign(view->block_hashes.begin(), view->block_hashes.end());
}

void RecordedWorkload::take(const core_call::Finish& call) {
  ended_s.emplace(call.id, call.input.now);
}

void RecordedWorkload::take(const core_call::FinishAll& call) {
  for (const RequestId id : call.ids) ended_s.emplace(id, call.input.now);
}

void RecordedWorkload::take(const core_call::Schedule& call) {
  planned_s_.push_back(call.input.now);
  // The first limits also apply before the recorded time, because another run may begin its first step a little earlier.
  const double from_s = is_first_step_ ? -std::numeric_limits<double>::infinity() : call.input.now;
  is_first_step_ = false;
  if (limits_ != (prefill_limits.empty() ? PrefillLimits{} : prefill_limits.back().second)) prefill_limits.emplace_back(from_s, limits_);
}

// Records the duration of a step. Steps run one after another, so a step that was planned before the end of the previous step starts at
// that end.
void RecordedWorkload::take(const core_call::Apply& call) {
  const double planned_s = planned_s_.empty() ? call.input.now : planned_s_.front();
  if (!planned_s_.empty()) planned_s_.pop_front();
  if (!call.result.sampled.empty()) step_s.push_back(std::max(0.0, call.input.now - std::max(applied_s_, planned_s)));
  applied_s_ = call.input.now;
}

void RecordedWorkload::applied(const StepOutcome* outcome) {
  if (outcome == nullptr) return;
  for (const RequestUpdate& update : outcome->updates) {
    std::vector<TokenId>& to = tokens[update.id];
    to.insert(to.end(), update.tokens.begin(), update.tokens.end());
    if (update.finished && update.status == RequestStatus::finished_repetition) repeated.insert(update.id);
    if (names.contains(update.id)) take_block_hashes(update.id);
  }
}

}  // namespace quire
