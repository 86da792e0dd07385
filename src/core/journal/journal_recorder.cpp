// The core calls it before and after each change, on its thread; seams answer in between. So the bytes of a call are complete when it is
// over, and are given out then. It copies what it is told and keeps no views; its memory is used again.
#include <utility>

#include "base/check.h"
#include "core/journal/answer_form.h"
#include "core/journal/decision_digest.h"
#include "core/journal/journal_form.h"
#include "core/journal/recorded_seams.h"
#include "core/journal/write_call.h"
#include "quire/journal.h"

namespace quire {

struct JournalRecorder::Impl final : CallBytes, AnswerSink {
  Impl(const CoreSeams& given, Take take) : recorded(given, *this), give(std::move(take)) {}

  void note(SeamCall call, RequestId request, const Question& question, std::span<const std::uint64_t> values,
            std::string_view bytes) override {
    out.byte(static_cast<std::uint8_t>(kAnswerOf + static_cast<std::uint8_t>(call)));
    write_answer(out, request, question.digest(), values, bytes);
  }
  void planned(const StepPlan& plan) override {
    out.byte(kPlanned);
    out.fixed(digest_of(plan));
    end_call();
  }
  void applied(const StepOutcome* outcome) override {
    out.byte(outcome == nullptr ? kRefused : kApplied);
    if (outcome != nullptr) out.fixed(digest_of(*outcome));
    end_call(true);
  }
  void answered(std::uint64_t answer) override {
    out.byte(kAnswered);
    out.number(answer);
    end_call();
  }
  void bind(const Core& made) override { core = &made; }
  void schedule(const StepInput& input) override {
    CallBytes::schedule(input);
    ++progress.num_steps;
    progress.now_s = input.now;
  }
  void end_call(bool has_applied = false) {
    ++progress.num_calls;
    behind_apply = has_applied;
    give(out.bytes);
    out.bytes.clear();
  }

  RecordedSeams recorded;
  Take give;
  const Core* core = nullptr;
  JournalProgress progress;
  bool behind_apply = false;
};

JournalRecorder::JournalRecorder(const CoreSeams& seams, Take take) : impl_(std::make_unique<Impl>(seams, std::move(take))) {}
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
  return impl_->core->checkpoint();
}

const JournalProgress& JournalRecorder::progress() const {
  return impl_->progress;
}

}  // namespace quire
