#include "server/api/anthropic/messages_routes.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/context_overflow.h"
#include "server/api/anthropic/messages_answer.h"
#include "server/api/anthropic/messages_request.h"
#include "server/api/serving.h"
#include "server/request/object_reader.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

class MessageShape final : public AnswerShape {
 public:
  [[nodiscard]] std::string_view id_prefix() const override { return "msg_"; }
  [[nodiscard]] bool always_has_parts() const override { return true; }
  [[nodiscard]] Error with_client_field_names(Error error) const override { return with_messages_field_names(std::move(error)); }
  [[nodiscard]] std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& request,
                                                          const Tokenizer& /*tokenizer*/) const override {
    auto writer = std::make_unique<MessageWriter>(std::move(head), request.stream);
    if (request.compare) writer->set_diagnostics(diagnostics_json(request.compared.get()));
    return writer;
  }
};

// Returns the number of tokens in a chat's prompt. If the prompt is too long for the context, returns a lower bound, because an edit may
// still shorten the prompt enough.
Result<std::size_t> count_chat(const boost::json::object& chat, const RequestContext& context) {
  auto parsed = read_chat_of(std::make_shared<const MessageShape>(), chat, {}, context);
  if (!parsed) return std::unexpected(parsed.error());
  const auto text = context.model.render(std::move(parsed->chat), context.cancellation);
  if (!text) return std::unexpected(with_messages_field_names(text.error()));
  const auto tokens =
      context.model.encode(*text, {.add_special = false, .parse_special = true, .cancellation = context.cancellation}, "messages");
  if (tokens) return tokens->size();
  const auto overflow = overflow_of(tokens.error());
  return overflow ? overflow->prompt_tokens : context.model.max_model_len() + std::size_t{1};
}

Result<CompletionRequest> read_message(std::string body, bool counts_only, const RequestContext& context) {
  auto object = parse_object(std::exchange(body, {}), context.cancellation);
  if (!object) return std::unexpected(object.error());
  std::vector<std::string> ignored;
  auto translated = chat_of_messages(std::move(*object), {.counts_only = counts_only, .is_beta = context.is_beta}, ignored);
  if (!translated) return std::unexpected(translated.error());
  const auto count = [&context](const boost::json::object& chat) { return count_chat(chat, context); };
  if (const auto applied = apply_context_edits(translated->edits, translated->chat, count); !applied)
    return std::unexpected(applied.error());
  auto parsed = read_chat_of(std::make_shared<const MessageShape>(), std::move(translated->chat), ignored, context);
  const std::optional<std::string> previous = std::move(translated->previous);
  if (parsed && previous.has_value()) parsed->compare = {.with = *previous};
  // The body's user id is only the fallback for the session, because a user may have several sessions.
  if (parsed && !context.session.empty()) parsed->session_key.clear();
  return parsed;
}

Result<std::string> count_tokens(std::string body, const RequestContext& context) {
  auto parsed = read_message(std::move(body), true, context);
  if (!parsed) return std::unexpected(parsed.error());
  const auto count = count_prompt_tokens(*std::move(parsed), context);
  if (!count) return std::unexpected(count.error());
  return json_object([&](JsonWriter& json) { json.field("input_tokens", *count); });
}

}  // namespace

ApiRoutes messages_routes(Serving& serving) {
  const auto read = [](std::string body, const RequestContext& context) { return read_message(std::move(body), false, context); };
  const auto create = [&serving, read](HttpRequest& request, const Wake& wake) { return serving.complete(request, wake, read); };
  const auto count = [&serving](HttpRequest& request, const Wake& wake) {
    return serving.answer_body(request, wake,
                               [&serving, is_beta = request.is_beta](std::string body, const CancellationPoint& cancellation) {
                                 RequestContext context = serving.context({}, &cancellation);
                                 context.is_beta = is_beta;
                                 return count_tokens(std::move(body), context);
                               });
  };
  return {.routes = {{"/v1/messages", "POST", Access::key, create}, {"/v1/messages/count_tokens", "POST", Access::key, count}},
          .error_path_prefix = "/v1/messages",
          .convert_error = as_messages_error};
}

}  // namespace quire
