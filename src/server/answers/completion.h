#pragma once
// One request of a client in progress: its choices, from submission to the last token.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/detokenizer.h"
#include "server/answers/answer.h"
#include "server/answers/answer_writer.h"
#include "server/answers/chat_answer.h"
#include "server/answers/engine_client.h"
#include "server/http/reply.h"
#include "server/request/completion_request.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"
#include "text/stop_strings.h"

namespace quire {

// The parameters of a fork: the choice to fork, and the settings in which the child differs.
struct ForkCall {
  std::uint32_t choice = 0;  // index of the parent's choice
  EngineFork fork;
  bool stream = false;
};

// Used on the server's thread only. The destructor aborts its running requests.
class Completion final : public OutputReceiver, public AnswerSource {
 public:
  struct Start {
    PreparedCompletion prepared;
    std::string id;
    std::int64_t created_s = 0;
    Wake wake;  // called when there is something new to send or the answer is complete
  };

  // Submits a request for every choice. If the engine refuses one of them, none runs.
  static Result<std::shared_ptr<Completion>> start(EngineClient& engine, const ServedModel& model, Start start);

  // Forks a running choice. The choices of the child continue from the current end of the forked choice. The child has the same settings
  // except for `call`, and writes its answer in `shape`. Errors: the choice has ended, or cannot be forked (beam search, session).
  [[nodiscard]] Result<std::shared_ptr<Completion>> fork(const ForkCall& call, std::shared_ptr<const AnswerShape> shape, Start start) const;

  // Appends tokens to the prompt of a session. `is_last`: no more input follows, and the session ends after it has answered all inputs.
  // Errors: the request is not a session, or has ended; see also Engine::append().
  [[nodiscard]] Result<void> append(std::vector<TokenId> tokens, bool is_last);
  ~Completion() override;

  void on_output(std::uint32_t choice, RequestOutput& output) override;
  void on_failure() noexcept override;
  void on_step_end() override { wake_(); }

  [[nodiscard]] bool is_stream() const override { return request_.stream; }
  [[nodiscard]] std::string_view stream_content_type() const override { return request_.shape->stream_content_type(); }
  [[nodiscard]] bool finished() const override { return num_unfinished_ == 0; }
  [[nodiscard]] bool may_be_refused() const override {
    return (request_.form.has_value() || is_fork_) && !has_begun_ && !refusal_ && !finished();
  }
  [[nodiscard]] bool refused() const override { return refusal_.has_value(); }
  [[nodiscard]] std::size_t num_pending_bytes() const override { return events_.size(); }
  [[nodiscard]] std::size_t num_echo_bytes() const override { return num_echo_bytes_; }
  [[nodiscard]] std::string take_events() override { return std::exchange(events_, {}); }
  [[nodiscard]] HttpResponse take_response() override;
  [[nodiscard]] std::string ignored_fields() const override;
  [[nodiscard]] TokenCounts num_tokens() const override;
  [[nodiscard]] std::optional<Progress> progress() const override;
  // Returns when the session began to wait for input, or nullopt if no session waits.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> waiting_since() const override { return waiting_since_; }
  void time_out() override;
  void abort() override;

 private:
  // The state of one choice: its request in the engine, its text, and the parts that are already written.
  struct Choice {
    Detokenizer detokenizer;
    StopStrings stops;
    std::optional<RequestId> running;
    std::string text;  // the whole answer, or the text of the next event
    std::size_t num_characters = 0;
    std::vector<PositionLogprobs> logprobs;
    std::vector<TextSpan> spans{};                                           // text of each of `logprobs`, if the text is parsed
    std::size_t num_text_bytes = 0;                                          // bytes that the detokenizer has returned
    std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs{};  // set when they arrive; null again after they are written
    std::vector<std::uint16_t> experts{};                                    // experts of all tokens except the last, if requested
    std::uint32_t num_tokens = 0;
    std::uint32_t num_cached_tokens = 0;
    std::vector<TokenId> tokens{};                          // with `return_token_ids`: tokens not written yet
    bool has_written_prompt_ids = false;                    // the token ids of its prompt are written
    std::shared_ptr<const KvTransferParams> kv_transfer{};  // set at the end, if the blocks are kept for another server
    bool begun = false;
    std::uint32_t num_reasoning_tokens = 0;
    std::optional<FinishReason> finish;
    StopCause cause;
    std::unique_ptr<ChatAnswer> chat{};  // parses the text, if it can contain more than plain text
  };

  Completion(EngineClient& engine, const ServedModel& model, Start start);
  Result<void> submit_all();
  void take_tokens(Choice& choice, const RequestOutput& output);
  static std::string_view detokenize(Choice& choice, TokenId token, TextSpan* span);
  void take_text(Choice& choice, std::string_view text);
  static void append_text(Choice& choice, std::string_view text);
  [[nodiscard]] bool is_skipped(const Choice& choice, TokenId token) const;
  [[nodiscard]] std::unique_ptr<ChatAnswer> make_chat() const;
  void close(Choice& choice, const RequestOutput& output);
  void end_input(std::uint32_t index, const RequestOutput& output);
  void write_choice(std::uint32_t index);
  static void clear_written(Choice& choice);
  void end_stream();
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] std::string whole_answer();
  void refuse(Error refusal);
  [[nodiscard]] ChoiceText describe(std::uint32_t index) const;
  [[nodiscard]] ReportedExperts experts_of(std::uint32_t index) const;
  [[nodiscard]] std::vector<std::uint32_t> best() const;

  EngineClient* engine_;
  const ServedModel* model_;
  const std::string id_;
  CompletionRequest request_;
  std::vector<EngineRequest> unsubmitted_;
  std::vector<std::uint64_t> num_prompt_tokens_;        // one value per prompt
  std::vector<TokenId> first_prompt_tokens_;            // one token per prompt
  std::vector<std::vector<TokenId>> returned_prompts_;  // one list per prompt, only with `return_token_ids`
  Wake wake_;
  std::unique_ptr<AnswerWriter> writer_;
  std::vector<Choice> choices_;
  std::size_t num_unfinished_ = 0;
  std::string error_;
  std::uint32_t num_unanswered_inputs_ = 1;  // inputs of a session that are not answered yet
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;
  bool has_begun_ = false;  // the engine has accepted a choice and sent an output
  bool is_fork_ = false;    // a fork, which the engine may still refuse
  std::chrono::steady_clock::time_point submitted_;
  std::optional<std::chrono::steady_clock::time_point> first_token_;
  double waited_s_ = 0.0;  // longest queue time of the choices, in seconds
  std::optional<Error> refusal_;
  // Streams: events that take_events() has not returned yet.
  std::string events_;
  std::string whole_;  // body of a finished answer that is not a stream
  std::size_t num_echo_bytes_ = 0;
};

}  // namespace quire
