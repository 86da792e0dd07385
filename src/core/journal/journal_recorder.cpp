// Writes what a core is told and decides as calls of a journal. The core calls it before and after each change, on its thread; seams answer
// in between. So the bytes of a call are complete when it is over, and are given out then. It copies what it is told and keeps no views;
// its memory is used again.
#include <utility>

#include "base/check.h"
#include "core/journal/answer_form.h"
#include "core/journal/blank_calls.h"
#include "core/journal/decision_digest.h"
#include "core/journal/journal_form.h"
#include "core/journal/recorded_seams.h"
#include "core/journal/write_call.h"
#include "quire/journal.h"

namespace quire {

struct JournalRecorder::Impl final : CallBytes, AnswerSink {
  Impl(const CoreSeams& given, Take take, const std::optional<NameKey>& leave_out)
      : names(leave_out),
        recorded(given, *this, names ? &*names : nullptr),
        give(std::move(take)),
        with_tokens(!names),
        blank(names.value_or(NameKey{})) {}

  void note(SeamCall call, RequestId request, const Question& question, std::span<const std::uint64_t> values,
            std::string_view bytes) override {
    if (out.bytes.empty() && !postponed.has_result) return;  // nobody decides anything: what is only looked at is named, too
    ByteWriter& to = postponed.has_result ? postponed.answers : out;
    to.byte(static_cast<std::uint8_t>(kAnswerOf + static_cast<std::uint8_t>(call)));
    write_answer(to, request, question.digest(), values, bytes);
  }
  void bind(const Core& made) override { core = &made; }
  void add(const NewRequest& request, const StepInput& input) override {
    if (with_tokens) return CallBytes::add(request, input);
    CallBytes::add(blank.request(request), input);
  }
  void continue_session(RequestId id, const SessionInput* input, const StepInput& now) override {
    if (with_tokens || input == nullptr) return CallBytes::continue_session(id, input, now);
    const SessionInput other = blank.input(*input);
    CallBytes::continue_session(id, &other, now);
  }
  void fork(RequestId parent, const ForkRequest& child, const StepInput& input) override {
    CallBytes::fork(parent, with_tokens ? child : blank.child(core, parent, child), input);
  }
  void set_drafts(std::span<const Draft> drafts) override { CallBytes::set_drafts(with_tokens ? drafts : blank.drafts(drafts)); }
  void set_drafts_in_plan(std::span<const Draft> drafts) override {
    CallBytes::set_drafts_in_plan(with_tokens ? drafts : blank.drafts(drafts));
  }
  void schedule(const StepInput& input) override {
    CallBytes::schedule(input);
    ++progress.num_steps;
    progress.now_s = input.now;
  }
  // Without tokens it is written when its outcome is known, since that says which token ended a request.
  void apply(const StepResult& result, const StepInput& input) override {
    if (with_tokens) return CallBytes::apply(result, input);
    QUIRE_CHECK(!postponed.has_result, "one result is taken at a time");
    blank.begin_result(core, result);
    postponed.has_result = true;
    postponed.result = result;
    postponed.input = input;
  }
  void planned(const StepPlan& plan) override {
    out.byte(kPlanned);
    out.fixed(digest_of(plan, with_tokens));
    end_call();
  }
  void applied(const StepOutcome* outcome) override {
    if (std::exchange(postponed.has_result, false)) {
      CallBytes::apply(blank.result(postponed.result, outcome), postponed.input);
      out.bytes.insert(out.bytes.end(), postponed.answers.bytes.begin(), postponed.answers.bytes.end());
      postponed.answers.bytes.clear();
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
    QUIRE_CHECK(out.bytes.size() >= 2 && !postponed.has_result, "a call is given out whole, with its answer");
    ++progress.num_calls;
    behind_apply = has_applied;
    give(out.bytes);
    out.bytes.clear();
  }

  const std::optional<NameKey> names;  // null: with tokens
  RecordedSeams recorded;
  Take give;
  const bool with_tokens;
  const Core* core = nullptr;
  JournalProgress progress;
  bool behind_apply = false;
  BlankCalls blank;
  // The result of an apply() that is under way, and what seams answered in it.
  struct {
    bool has_result = false;
    StepResult result;
    StepInput input;
    ByteWriter answers;
  } postponed;
};

JournalRecorder::JournalRecorder(const CoreSeams& seams, Take take, const std::optional<NameKey>& leave_out)
    : impl_(std::make_unique<Impl>(seams, std::move(take), leave_out)) {
  QUIRE_CHECK(!leave_out || seams.hash != nullptr, "names of blocks are recorded where their tokens are not");
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
  return impl_->core != nullptr && (impl_->behind_apply || impl_->core->num_outstanding_plans() == 0);
}

std::vector<std::uint8_t> JournalRecorder::checkpoint() const {
  QUIRE_CHECK(impl_->core != nullptr, "a core was made with the recorder's seams");
  const std::optional<NameKey>& names = impl_->names;
  return names ? impl_->core->checkpoint(CheckpointTokens::left_out, &*names) : impl_->core->checkpoint();
}

const JournalProgress& JournalRecorder::progress() const {
  return impl_->progress;
}

}  // namespace quire
