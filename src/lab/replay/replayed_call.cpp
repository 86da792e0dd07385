// Stores the last call of a replayed core, digests its answer, and counts all calls. Called by that core on the thread that replays. The
// digests must be computed as in JournalRecorder; otherwise every replay would report a difference.
#include "lab/replay/replayed_call.h"

#include <fmt/format.h>

#include <variant>

#include "core/journal/decision_digest.h"

namespace quire {

std::string ReplayedCall::text() const {
  return about_ ? fmt::format("{}({})", name_, *about_) : fmt::format("{}()", name_);
}

void ReplayedCall::bind(const Core& core) {
  if (also != nullptr) also->bind(core);
}

void ReplayedCall::on_call(const CoreCall& call) {
  std::visit(
      [this](const auto& one) {
        name_ = one.kName;
        about_.reset();
        if constexpr (requires { one.about(); }) about_ = one.about();
      },
      call);
  num_requests += std::holds_alternative<core_call::Add>(call) ? 1 : 0;
  num_forks += std::holds_alternative<core_call::Fork>(call) ? 1 : 0;
  if (const auto* const schedule = std::get_if<core_call::Schedule>(&call)) {
    last_s = schedule->input.now;
    if (num_steps++ == 0) first_s = last_s;
  }
  if (also != nullptr) also->on_call(call);
}

void ReplayedCall::planned(const StepPlan& plan) {
  answer = {JournalAnswer::Kind::planned, digest_of(plan, with_tokens)};
  if (also != nullptr) also->planned(plan);
}

void ReplayedCall::applied(const StepOutcome* outcome) {
  answer = {JournalAnswer::Kind::refused, 0};
  if (also != nullptr) also->applied(outcome);
  if (outcome == nullptr) return;
  answer = {JournalAnswer::Kind::applied, digest_of(*outcome, with_tokens)};
  for (const RequestUpdate& update : outcome->updates) num_tokens += update.tokens.size();
}

void ReplayedCall::answered(std::uint64_t number) {
  answer = {JournalAnswer::Kind::answered, number};
  if (also != nullptr) also->answered(number);
}

}  // namespace quire
