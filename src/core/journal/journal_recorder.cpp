// Writes the inputs and decisions of a core as the calls of a journal. Called on the core's thread, before and after each change; seams
// answer in between. The bytes of a call are complete when the call has ended, and are then passed to `take`. The recorder copies its
// inputs, keeps no views, and reuses its memory.
#include <utility>
#include <variant>

#include "base/check.h"
#include "core/journal/answer_format.h"
#include "core/journal/call_bytes.h"
#include "core/journal/call_redactor.h"
#include "core/journal/decision_digest.h"
#include "core/journal/journal_format.h"
#include "core/journal/recorded_seams.h"
#include "quire/journal.h"

namespace quire {

struct JournalRecorder::Impl final : CallSink, AnswerSink {
  Impl(const CoreSeams& given, Take take, const std::optional<PseudonymKey>& leave_out)
      : pseudonym_key(leave_out),
        recorded(given, *this, pseudonym_key ? &*pseudonym_key : nullptr),
        give(std::move(take)),
        with_tokens(!pseudonym_key),
        redactor(pseudonym_key.value_or(PseudonymKey{})) {}

  void note(SeamCall call, RequestId request, const SeamQuestion& question, std::span<const std::uint64_t> values,
            std::string_view bytes) override {
    if (out.bytes.empty() && !postponed) return;  // outside a call: hashes are also computed for look-ups, which are not recorded
    ByteWriter& to = postponed ? postponed_answers : out;
    to.byte(static_cast<std::uint8_t>(kSeamAnswerBase + static_cast<std::uint8_t>(call)));
    write_answer(to, request, question.digest(), values, bytes);
  }
  void bind(const Core& made) override { core = &made; }
  void on_call(const CoreCall& call) override {
    if (const auto* const schedule = std::get_if<core_call::Schedule>(&call)) {
      ++progress.num_steps;
      progress.now_s = schedule->input.now;
    }
    if (with_tokens) return write_call(out, call);
    const auto* const apply = std::get_if<core_call::Apply>(&call);
    if (apply == nullptr) return write_call(out, redactor.redacted(core, call));
    // Without tokens, the call is written when its outcome is known, because the outcome shows which token ended a request.
    QUIRE_CHECK(!postponed, "at most one result is pending");
    redactor.begin_result(core, apply->result);
    postponed = *apply;
  }
  void planned(const StepPlan& plan) override {
    out.byte(kPlanned);
    out.fixed(digest_of(plan, with_tokens));
    end_call();
  }
  void applied(const StepOutcome* outcome) override {
    if (postponed) {
      write_call(out, core_call::Apply{redactor.result(postponed->result, outcome), postponed->input});
      postponed.reset();
      out.bytes.insert(out.bytes.end(), postponed_answers.bytes.begin(), postponed_answers.bytes.end());
      postponed_answers.bytes.clear();
    }
    out.byte(outcome == nullptr ? kRefused : kApplied);
    if (outcome != nullptr) out.fixed(digest_of(*outcome, with_tokens));
    end_call(true);
  }
  void answered(std::uint64_t answer) override {
    out.byte(kAnswered);
    out.number(answer);
    end_call();
  }
  void end_call(bool has_applied = false) {
    QUIRE_CHECK(out.bytes.size() >= 2 && !postponed, "a call is written complete, with its answer");
    ++progress.num_calls;
    after_apply = has_applied;
    give(out.bytes);
    out.bytes.clear();
  }

  const std::optional<PseudonymKey> pseudonym_key;  // nullopt: tokens are recorded
  RecordedSeams recorded;
  Take give;
  const bool with_tokens;
  const Core* core = nullptr;
  JournalProgress progress;
  bool after_apply = false;
  CallRedactor redactor;
  ByteWriter out;                             // the call in progress
  std::optional<core_call::Apply> postponed;  // the apply() in progress, if tokens are left out
  ByteWriter postponed_answers;               // the seams' answers during this apply()
};

JournalRecorder::JournalRecorder(const CoreSeams& seams, Take take, const std::optional<PseudonymKey>& leave_out)
    : impl_(std::make_unique<Impl>(seams, std::move(take), leave_out)) {
  QUIRE_CHECK(!leave_out || seams.hash != nullptr, "a hash function is set if tokens are left out");
}
JournalRecorder::~JournalRecorder() = default;

CoreSeams JournalRecorder::seams() const {
  CoreSeams seams = impl_->recorded.seams();
  seams.calls = impl_.get();
  return seams;
}

SeamRecord JournalRecorder::which() const {
  return impl_->recorded.which();
}

bool JournalRecorder::can_checkpoint() const {
  return impl_->core != nullptr && (impl_->after_apply || impl_->core->num_outstanding_plans() == 0);
}

std::vector<std::uint8_t> JournalRecorder::checkpoint() const {
  QUIRE_CHECK(impl_->core != nullptr, "a core was created with the recorder's seams");
  const std::optional<PseudonymKey>& pseudonym_key = impl_->pseudonym_key;
  return pseudonym_key ? impl_->core->checkpoint(CheckpointTokens::left_out, &*pseudonym_key) : impl_->core->checkpoint();
}

const JournalProgress& JournalRecorder::progress() const {
  return impl_->progress;
}

}  // namespace quire
