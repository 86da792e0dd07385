#pragma once
// The format of answers of /v1/completions and /v1/chat/completions.
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/tokenizer.h"
#include "server/answers/answer_writer.h"
#include "server/api/openai/answer_json.h"
#include "server/request/answer_shape.h"

namespace quire {

class OpenAiShape final : public AnswerShape {
 public:
  // `hidden_states_path` is the file with the prompt's hidden states, or empty if they are not requested.
  explicit OpenAiShape(Api api, std::string hidden_states_path = {}) : api_(api), hidden_states_path_(std::move(hidden_states_path)) {}

  [[nodiscard]] std::string_view id_prefix() const override { return api_ == Api::chat ? "chatcmpl-" : "cmpl-"; }
  [[nodiscard]] bool always_has_parts() const override { return false; }
  [[nodiscard]] Error with_client_field_names(Error error) const override { return error; }
  [[nodiscard]] std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& request,
                                                          const Tokenizer& tokenizer) const override;

 private:
  Api api_;
  std::string hidden_states_path_;
};

struct OpenAiWriterOptions {
  bool include_usage = false;     // the last chunk contains the usage
  bool continuous_usage = false;  // every chunk contains the usage
  std::string more{};             // JSON with further fields of a whole answer, see openai_answer()
};

// Owned by one thread at a time.
class OpenAiWriter final : public AnswerWriter {
 public:
  // `tokenizer` must outlive this object.
  OpenAiWriter(AnswerHead head, const Tokenizer& tokenizer, OpenAiWriterOptions options);

  void begin_choice(std::string& events, std::uint32_t index, const Usage& usage) override;
  [[nodiscard]] bool write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) override;
  void end_stream(std::string& events, const Usage& usage, const Error* error) override;
  [[nodiscard]] std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) override;

 private:
  AnswerHead head_;
  const Tokenizer* tokenizer_;
  OpenAiWriterOptions options_;
  EventWriter writer_;
  std::set<std::uint32_t> begun_;  // chat: choices whose role event is already written
};

}  // namespace quire
