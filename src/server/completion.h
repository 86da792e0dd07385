#pragma once
// One request of a client under way: its choices, from submission to the last token.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/detokenizer.h"
#include "server/answers/answer.h"
#include "server/answers/answer_writer.h"
#include "server/answers/chat_answer.h"
#include "server/answers/engine_client.h"
#include "server/api/openai/openai_response.h"
#include "server/api/responses/response_store.h"
#include "server/http/http.h"
#include "server/prepare.h"
#include "server/request/completion_request.h"
#include "server/request/served_model.h"
#include "server/request/small_requests.h"
#include "text/stop_strings.h"

namespace quire {

// Lives on the server's thread. Its destruction aborts what still runs.
class Completion final : public OutputReceiver {
 public:
  struct Start {
    PreparedCompletion prepared;
    std::string id;
    std::int64_t created_s = 0;
    std::function<void()> wake;          // called when there is something new to send or the answer is complete
    ResponseStore* responses = nullptr;  // for those of /v1/responses; must outlive it
    std::string hidden_states_path{};    // of its prompt
  };

  // Submits every choice. If the engine refuses one, none runs.
  static Result<std::shared_ptr<Completion>> start(EngineClient& engine, const ServedModel& model, Start start);

  // Another one, whose choices go on from where one of this is: it has all from this but what `call` says. Errors: that choice has ended.
  [[nodiscard]] Result<std::shared_ptr<Completion>> fork(const ForkCall& call, Start start) const;

  // More of a session's prompt. Errors: it is none, or has ended; see Engine::append().
  [[nodiscard]] Result<void> append(std::vector<TokenId> tokens, bool is_last);
  // Of a session whose answers are over: since when its client has said nothing.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> waits_since() const { return waits_since_; }
  // It has waited too long: the stream ends with an error.
  void time_out();

  ~Completion() override;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  void on_output(std::uint32_t choice, RequestOutput& output) override;
  void on_failure() noexcept override;
  void on_step_end() override { wake_(); }

  [[nodiscard]] bool is_stream() const { return request_.stream; }
  [[nodiscard]] bool finished() const { return num_unfinished_ == 0; }
  // It may yet turn out that what was asked for cannot be done: then response() says so, also of a stream.
  [[nodiscard]] bool may_be_refused() const { return request_.form.has_value() && !has_begun_ && !refusal_; }
  [[nodiscard]] bool refused() const { return refusal_.has_value(); }

  // Streams: events not taken yet. The last ones include "[DONE]".
  [[nodiscard]] std::size_t num_pending_bytes() const { return events_.size(); }
  // Of all events so far, those that repeat prompts: their size is the client's own doing and says nothing about how it reads.
  [[nodiscard]] std::size_t num_echo_bytes() const { return num_echo_bytes_; }
  [[nodiscard]] std::string take_events() { return std::exchange(events_, {}); }

  // Of the request's fields, joined by commas.
  [[nodiscard]] std::string ignored_fields() const;
  // Whole answers, once finished.
  [[nodiscard]] HttpResponse response() const;
  // So far.
  [[nodiscard]] Usage usage() const;

  // Ends what still runs.
  void abort();

 private:
  struct Choice {
    Detokenizer detokenizer;
    StopStrings stops;
    std::optional<RequestId> running;
    std::string text;  // whole answer, or what the next event carries
    std::size_t num_characters = 0;
    std::vector<PositionLogprobs> logprobs;
    std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs{};  // until they are told, if they have come
    std::uint32_t num_tokens = 0;
    std::uint32_t num_cached_tokens = 0;
    std::vector<TokenId> tokens{};  // with `return_token_ids`, until they are told
    bool told_prompt = false;       // its tokens
    bool begun = false;
    std::uint32_t num_reasoning_tokens = 0;
    std::optional<FinishReason> finish;
    StopCause cause;
    std::unique_ptr<ChatAnswer> chat{};  // takes the text, where more than text may be in it
  };

  Completion(EngineClient& engine, const ServedModel& model, Start start);
  Result<void> submit_all();
  void take_tokens(Choice& choice, const RequestOutput& output);
  void take_text(Choice& choice, std::string_view text);
  static void say(Choice& choice, std::string_view text);
  [[nodiscard]] bool is_skipped(const Choice& choice, TokenId token) const;
  [[nodiscard]] std::unique_ptr<ChatAnswer> make_chat(std::size_t index);
  void close(Choice& choice, const RequestOutput& output);
  void end_input(std::uint32_t index, const RequestOutput& output);
  void write_event(std::uint32_t index);
  void write_deltas(std::uint32_t index, const Usage* usage);
  static void forget_told(Choice& choice);
  [[nodiscard]] std::unique_ptr<AnswerWriter> make_writer(ResponseStore* responses) const;
  void end_shaped();
  void end_stream();
  void refuse(Error refusal);
  [[nodiscard]] ChoiceText describe(std::uint32_t index) const;
  [[nodiscard]] std::vector<std::uint32_t> best() const;

  EngineClient* engine_;
  const ServedModel* model_;
  CompletionRequest request_;
  std::vector<EngineRequest> unsubmitted_;
  std::vector<std::uint64_t> num_prompt_tokens_;    // per prompt
  std::vector<TokenId> first_prompt_tokens_;        // the same
  std::vector<std::vector<TokenId>> told_prompts_;  // the same, with `return_token_ids`
  std::function<void()> wake_;
  AnswerHead head_;
  EventWriter writer_;
  std::unique_ptr<AnswerWriter> shaped_;  // writes instead, for other APIs than OpenAI's of chats
  std::vector<Choice> choices_;
  std::size_t num_unfinished_ = 0;
  std::string error_;
  std::uint32_t num_inputs_ = 1;  // of a session, not answered yet
  std::optional<std::chrono::steady_clock::time_point> waits_since_;
  bool has_begun_ = false;  // something has come of a choice
  std::optional<Error> refusal_;
  std::string events_;
  std::size_t num_echo_bytes_ = 0;
};

}  // namespace quire
