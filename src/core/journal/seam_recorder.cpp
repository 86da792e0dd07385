#include <string>
#include <utility>

#include "core/journal/recorded_seams.h"
#include "quire/seam_record.h"

namespace quire {

struct SeamRecorder::Impl final : AnswerSink {
  explicit Impl(const CoreSeams& given) : recorded(given, *this) {}
  void note(SeamCall call, RequestId request, const SeamQuestion& question, std::span<const std::uint64_t> values,
            std::string_view bytes) override {
    answers.push_back({.call = call,
                       .request = request,
                       .question = question.digest(),
                       .values = {values.begin(), values.end()},
                       .bytes = std::string(bytes)});
  }

  std::vector<SeamAnswer> answers;
  RecordedSeams recorded;
};

SeamRecorder::SeamRecorder(const CoreSeams& seams) : impl_(std::make_unique<Impl>(seams)) {}
SeamRecorder::~SeamRecorder() = default;

CoreSeams SeamRecorder::seams() const {
  return impl_->recorded.seams();
}

SeamRecord SeamRecorder::take() {
  SeamRecord taken = impl_->recorded.which();
  taken.answers = std::exchange(impl_->answers, {});
  return taken;
}

}  // namespace quire
