#pragma once
// A transcription in progress, window by window, from the first engine request to the complete transcript.
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

// Encoder input of one window. The job pool computes it before the window is transcribed.
using SharedFeatures = std::shared_ptr<const EncoderInput>;

// Used on the server's thread only. The destructor aborts its running request.
class TranscriptionCall final : public OutputReceiver, public AnswerSource, public std::enable_shared_from_this<TranscriptionCall> {
 public:
  struct Start {
    TranscriptionRequest request;
    SharedFeatures first_window;
    std::shared_ptr<BodyBudget::Lease> samples_lease;
    std::shared_ptr<const SpeechModel> speech;
    std::string id, tenant;
    std::string client;  // HttpRequest::client
    Wake wake;           // called when there is something new to send, or the answer is complete
  };

  // Starts the first window. Errors: the engine refuses the request.
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
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> waiting_since() const override { return std::nullopt; }
  void time_out() override {}
  void abort() override;

  // Returns the encoder input of the window that begins at this sample. Called on any thread.
  [[nodiscard]] static SharedFeatures compute_features(const SpeechModel& speech, std::span<const float> samples, std::size_t begin);

 private:
  TranscriptionCall(Serving& serving, Start start);
  [[nodiscard]] Result<void> begin_window(SharedFeatures features);
  void take_token(TokenId token, const PositionLogprobs* logprobs);
  void end_window();
  void advance_window(double seconds);
  [[nodiscard]] WindowScores score() const;
  [[nodiscard]] std::string text_of(std::span<const TokenId> tokens) const;
  void add_window(const WindowScores& scores);
  void add_segment(const TranscribedWindow::Part& part, double window_s, const WindowScores& scores);
  void compute_next_features();
  // Returns the tokens that the next window is conditioned on: the end of the text before it.
  [[nodiscard]] std::vector<TokenId> previous() const;
  void fail_with(Error error);
  void finish();
  [[nodiscard]] double window_seconds() const;
  [[nodiscard]] const SpeechVocabulary& words() const { return start_.speech->words; }

  Serving* serving_;
  Start start_;
  Transcript transcript_;
  bool has_times_;   // the model writes timestamps, and windows advance by them
  bool is_checked_;  // a window may be retried or dropped, so its text is streamed only after its end
  std::vector<float> temperatures_;
  // The text before the next window: the client's text (unless `keeps_previous`), then earlier windows. The window gets its last tokens.
  std::vector<TokenId> previous_tokens_;
  std::size_t num_prefix_outputs_ = 0;  // outputs that precede the text and are still expected (TimestampRules::begins)
  std::size_t window_begin_ = 0;        // index of the first sample of the current window
  SharedFeatures window_;               // features of the current window, as long as it may be retried
  std::size_t num_attempts_ = 0;        // attempts at the current window
  std::optional<double> no_speech_prob_;
  std::optional<RequestId> running_;
  bool window_ended_ = false;
  std::vector<TokenId> outputs_;  // outputs of the current window, without the tokens before the text
  double logprob_sum_ = 0.0;      // sum over `outputs_` and the end token
  Detokenizer detokenizer_;       // for streams without timestamps
  TokenCounts counts_;
  std::optional<Error> error_;
  bool has_begun_ = false;  // part of the stream may have been sent
  bool finished_ = false;
  std::string events_;
};

}  // namespace quire
