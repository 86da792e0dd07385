#pragma once
// One request of a client under way: its choices, from submission to the last token.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

// What a fork of a choice is to be.
struct ForkCall {
  std::uint32_t choice = 0;  // of the parent
  EngineFork fork;
  bool stream = false;
};

// Lives on the server's thread. Its destruction aborts what still runs.
class Completion final : public OutputReceiver, public AnswerSource {
 public:
  struct Start {
    PreparedCompletion prepared;
    std::string id;
    std::int64_t created_s = 0;
    Wake wake;  // called when there is something new to send or the answer is complete
  };

  // Submits every choice. If the engine refuses one, none runs.
  static Result<std::shared_ptr<Completion>> start(EngineClient& engine, const ServedModel& model, Start start);

  // Another one, whose choices go on from where one of this is: it has all from this but what `call` says, and is told in `shape`. Errors:
  // that choice has ended.
  [[nodiscard]] Result<std::shared_ptr<Completion>> fork(const ForkCall& call, std::shared_ptr<const AnswerShape> shape, Start start) const;

  // More of a session's prompt. Errors: it is none, or has ended; see Engine::append().
  [[nodiscard]] Result<void> append(std::vector<TokenId> tokens, bool is_last);
  ~Completion() override;

  void on_output(std::uint32_t choice, RequestOutput& output) override;
  void on_failure() noexcept override;
  void on_step_end() override { wake_(); }

  [[nodiscard]] bool is_stream() const override { return request_.stream; }
  [[nodiscard]] bool finished() const override { return num_unfinished_ == 0; }
  [[nodiscard]] bool may_be_refused() const override { return request_.form.has_value() && !has_begun_ && !refusal_; }
  [[nodiscard]] bool refused() const override { return refusal_.has_value(); }
  [[nodiscard]] std::size_t num_pending_bytes() const override { return events_.size(); }
  [[nodiscard]] std::size_t num_echo_bytes() const override { return num_echo_bytes_; }
  [[nodiscard]] std::string take_events() override { return std::exchange(events_, {}); }
  [[nodiscard]] HttpResponse take_response() override;
  [[nodiscard]] std::string ignored_fields() const override;
  [[nodiscard]] TokenCounts num_tokens() const override;
  [[nodiscard]] std::optional<Progress> progress() const override;
  // Of a session whose answers are over.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> waits_since() const override { return waits_since_; }
  void time_out() override;
  void abort() override;

 private:
  // One of the answers: a request of the engine, its text so far, and what has been told of it.
  struct Choice {
    Detokenizer detokenizer;
    StopStrings stops;
    std::optional<RequestId> running;
    std::string text;  // whole answer, or what the next event carries
    std::size_t num_characters = 0;
    std::vector<PositionLogprobs> logprobs;
    std::vector<TextSpan> spans{};                                           // of logprobs, where the text is taken apart
    std::size_t num_text_bytes = 0;                                          // of the answer, as it came out of the detokenizer
    std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs{};  // until they are told, if they have come
    std::vector<std::uint16_t> experts{};                                    // of all tokens but the last, where they are asked for
    std::uint32_t num_tokens = 0;
    std::uint32_t num_cached_tokens = 0;
    std::vector<TokenId> tokens{};                          // with `return_token_ids`, until they are told
    bool told_prompt = false;                               // its tokens
    std::shared_ptr<const KvTransferParams> kv_transfer{};  // with its end, where its blocks are kept for another server
    bool begun = false;
    std::uint32_t num_reasoning_tokens = 0;
    std::optional<FinishReason> finish;
    StopCause cause;
    std::unique_ptr<ChatAnswer> chat{};  // takes the text, where more than text may be in it
  };

  Completion(EngineClient& engine, const ServedModel& model, Start start);
  Result<void> submit_all();
  void take_tokens(Choice& choice, const RequestOutput& output);
  static std::string_view detokenize(Choice& choice, TokenId token, TextSpan* span);
  void take_text(Choice& choice, std::string_view text);
  static void say(Choice& choice, std::string_view text);
  [[nodiscard]] bool is_skipped(const Choice& choice, TokenId token) const;
  [[nodiscard]] std::unique_ptr<ChatAnswer> make_chat() const;
  void close(Choice& choice, const RequestOutput& output);
  void end_input(std::uint32_t index, const RequestOutput& output);
  void tell(std::uint32_t index);
  static void forget_told(Choice& choice);
  void end_stream();
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] std::string whole_answer();
  void refuse(Error refusal);
  [[nodiscard]] ChoiceText describe(std::uint32_t index) const;
  [[nodiscard]] ToldExperts experts_of(std::uint32_t index) const;
  [[nodiscard]] std::vector<std::uint32_t> best() const;

  EngineClient* engine_;
  const ServedModel* model_;
  const std::string id_;
  CompletionRequest request_;
  std::vector<EngineRequest> unsubmitted_;
  std::vector<std::uint64_t> num_prompt_tokens_;    // per prompt
  std::vector<TokenId> first_prompt_tokens_;        // the same
  std::vector<std::vector<TokenId>> told_prompts_;  // the same, with `return_token_ids`
  Wake wake_;
  std::unique_ptr<AnswerWriter> writer_;
  std::vector<Choice> choices_;
  std::size_t num_unfinished_ = 0;
  std::string error_;
  std::uint32_t num_inputs_ = 1;  // of a session, not answered yet
  std::optional<std::chrono::steady_clock::time_point> waits_since_;
  bool has_begun_ = false;  // something has come of a choice
  std::chrono::steady_clock::time_point submitted_;
  std::optional<std::chrono::steady_clock::time_point> first_token_;
  double waited_s_ = 0.0;  // of the choice that waited longest
  std::optional<Error> refusal_;
  // Of a stream: written, and not yet taken by the session.
  std::string events_;
  std::string whole_;  // once finished, if it is no stream
  std::size_t num_echo_bytes_ = 0;
};

}  // namespace quire
