#pragma once
// A recording that is being heard, window by window, from the first request to the engine to the whole transcript.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/text/detokenizer.h"
#include "server/answers/engine_client.h"
#include "server/api/audio/transcript.h"
#include "server/api/audio/transcription_request.h"
#include "server/api/serving.h"
#include "server/http/body_budget.h"
#include "server/http/reply.h"

namespace quire {

// What the job pool makes before a window can be heard.
using SharedFeatures = std::shared_ptr<const EncoderInput>;

// Lives on the server's thread. Its destruction ends what still runs.
class TranscriptionCall final : public OutputReceiver, public AnswerSource, public std::enable_shared_from_this<TranscriptionCall> {
 public:
  struct Start {
    TranscriptionRequest request;
    SharedFeatures first_window;
    std::shared_ptr<BodyBudget::Lease> samples_lease;
    std::shared_ptr<const SpeechModel> speech;
    std::string id, tenant;
    Wake wake;  // called when there is something new to send, or the answer is complete
  };

  // Errors: the engine takes no request.
  static Result<std::shared_ptr<TranscriptionCall>> start(Serving& serving, Start start);
  ~TranscriptionCall() override;

  void on_output(std::uint32_t choice, RequestOutput& output) override;
  void on_failure() noexcept override;
  void on_step_end() override;

  [[nodiscard]] bool is_stream() const override { return start_.request.stream; }
  [[nodiscard]] bool finished() const override { return finished_; }
  [[nodiscard]] bool may_be_refused() const override { return !has_begun_ && !finished_; }
  [[nodiscard]] bool refused() const override { return error_.has_value() && !has_begun_; }
  [[nodiscard]] std::size_t num_pending_bytes() const override { return events_.size(); }
  [[nodiscard]] std::size_t num_echo_bytes() const override { return 0; }
  [[nodiscard]] std::string take_events() override { return std::exchange(events_, {}); }
  [[nodiscard]] HttpResponse take_response() override;
  [[nodiscard]] std::string ignored_fields() const override { return start_.request.ignored_fields; }
  [[nodiscard]] TokenCounts num_tokens() const override { return counts_; }
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> waits_since() const override { return std::nullopt; }
  void time_out() override {}
  void abort() override;

  // Features of the window that begins at this sample. Any thread.
  [[nodiscard]] static SharedFeatures hear(const SpeechModel& speech, std::span<const float> samples, std::size_t begin);

 private:
  TranscriptionCall(Serving& serving, Start start);
  [[nodiscard]] Result<void> begin_window(SharedFeatures features);
  void take_token(TokenId token, const PositionLogprobs* logprobs);
  void end_window();
  void go_on(double seconds);
  [[nodiscard]] WindowScores score() const;
  [[nodiscard]] std::string text_of(std::span<const TokenId> tokens) const;
  void add_window(const WindowScores& scores);
  void add_segment(const HeardWindow::Part& part, double window_s, const WindowScores& scores);
  void hear_next();
  // What the next window is told of what was said before.
  [[nodiscard]] std::vector<TokenId> previous() const;
  void fail_with(Error error);
  void finish();
  [[nodiscard]] double window_seconds() const;
  [[nodiscard]] const SpeechVocabulary& words() const { return start_.speech->words; }

  Serving* serving_;
  Start start_;
  Transcript transcript_;
  bool has_times_;  // it is told times, and windows follow each other by them
  bool is_judged_;  // a window may be tried again, or left out: none of it has been told
  std::vector<float> temperatures_;
  std::vector<TokenId> said_;     // of earlier windows, and what the client says was before; the last ones
  std::size_t num_before_ = 0;    // outputs to come before the text (TimestampRules::begins)
  std::size_t window_begin_ = 0;  // sample
  SharedFeatures window_;         // while it may be heard again
  std::size_t num_tries_ = 0;     // of it
  std::optional<double> no_speech_prob_;
  std::optional<RequestId> running_;
  bool window_ended_ = false;
  std::vector<TokenId> outputs_;  // of the window under way, behind these
  double logprob_sum_ = 0.0;      // of them, and of the end
  Detokenizer detokenizer_;       // of a stream without times
  TokenCounts counts_;
  std::optional<Error> error_;
  bool has_begun_ = false;  // something of the stream may have been sent
  bool finished_ = false;
  std::string events_;
};

}  // namespace quire
