// The last call of a core that is run again, its answer as a JournalRecorder digests it, and counts of all calls. Told by that core on the
// thread that replays. It must digest exactly what the recorder does, or every replay would differ.
#include "lab/replay/told_call.h"

#include <fmt/format.h>

#include "core/journal/decision_digest.h"

namespace quire {

void ToldCall::begin(const char* name, std::uint64_t about) {
  name_ = name;
  about_ = about;
}

std::string ToldCall::text() const {
  return about_ == UINT64_MAX ? fmt::format("{}()", name_) : fmt::format("{}({})", name_, about_);
}

void ToldCall::bind(const Core& core) {
  if (also != nullptr) also->bind(core);
}

void ToldCall::add(const NewRequest& request, const StepInput& /*input*/) {
  begin("add", request.id.value);
  ++num_requests;
}

void ToldCall::continue_session(RequestId id, const SessionInput* /*input*/, const StepInput& /*now*/) {
  begin("continue_session", id.value);
}

void ToldCall::fork(RequestId parent, const ForkRequest& /*child*/, const StepInput& /*input*/) {
  begin("fork", parent.value);
  ++num_forks;
}

void ToldCall::schedule(const StepInput& input) {
  begin("schedule");
  if (num_steps == 0) first_s = input.now;
  last_s = input.now;
  ++num_steps;
}

void ToldCall::apply(const StepResult& result, const StepInput& /*input*/) {
  begin("apply", result.step.value);
}

void ToldCall::set_drafts(std::span<const Draft> /*drafts*/) {
  begin("set_drafts");
}

void ToldCall::set_drafts_in_plan(std::span<const Draft> /*drafts*/) {
  begin("set_drafts_in_plan");
}

void ToldCall::finish(RequestId id, RequestStatus /*status*/, const StepInput& /*input*/) {
  begin("finish", id.value);
}

void ToldCall::finish(std::span<const RequestId> /*ids*/, RequestStatus /*status*/, const StepInput& /*input*/) {
  begin("finish");
}

void ToldCall::forget_blocks(RequestId id) {
  begin("forget_blocks", id.value);
}

void ToldCall::reset_prefix_cache(bool /*preempt_running*/, bool /*reset_connector*/, const StepInput& /*input*/) {
  begin("reset_prefix_cache");
}

void ToldCall::end_pins() {
  begin("end_pins");
}

void ToldCall::reset_connector_cache() {
  begin("reset_connector_cache");
}

void ToldCall::reset_encoder_cache() {
  begin("reset_encoder_cache");
}

void ToldCall::set_swap_costs(const SwapCosts& /*costs*/) {
  begin("set_swap_costs");
}

void ToldCall::set_pause_state(PauseState /*state*/) {
  begin("set_pause_state");
}

void ToldCall::make_stats() {
  begin("make_stats");
}

void ToldCall::planned(const StepPlan& plan) {
  answer = {JournalAnswer::Kind::planned, digest_of(plan, with_tokens)};
  if (also != nullptr) also->planned(plan);
}

void ToldCall::applied(const StepOutcome* outcome) {
  answer = {JournalAnswer::Kind::refused, 0};
  if (also != nullptr) also->applied(outcome);
  if (outcome == nullptr) return;
  answer = {JournalAnswer::Kind::applied, digest_of(*outcome, with_tokens)};
  for (const RequestUpdate& update : outcome->updates) num_tokens += update.tokens.size();
}

void ToldCall::answered(std::uint64_t number) {
  answer = {JournalAnswer::Kind::answered, number};
  if (also != nullptr) also->answered(number);
}

}  // namespace quire
