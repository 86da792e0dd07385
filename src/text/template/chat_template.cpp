#include "quire/text/chat_template.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>

#include "text/template/evaluator.h"
#include "text/template/failure.h"
#include "text/template/parser.h"
#include "text/utf8.h"

namespace quire {
namespace {

constexpr const char* kField = "chat_template";

constexpr const char* kUseAnother = "use another template";
constexpr const char* kChangeMessages = "change the messages, or use another template";
constexpr const char* kSendLess = "send fewer or shorter messages, or use another template";

std::unexpected<Error> parse_error(jinja::Failure failure) {
  return fail(failure.code, kField, fmt::format("line {}: {}", failure.line, failure.message), kUseAnother);
}

// An error without a line is about the conversation: the template called raise_exception, or the messages are nested too deeply.
std::unexpected<Error> render_error(jinja::Failure failure) {
  const char* const remedy = failure.code == ErrorCode::too_large ? kSendLess : kChangeMessages;
  if (failure.line == 0) return fail(failure.code, "messages", std::move(failure.message), remedy);
  return fail(failure.code, kField, fmt::format("line {}: {}", failure.line, failure.message), remedy);
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return fail(ErrorCode::too_large, kField, fmt::format("has {} bytes, more than the maximum of {}", source.size(), kMaxSourceBytes),
                kUseAnother);
  if (!is_valid_utf8(source)) return fail(ErrorCode::invalid_argument, kField, "is not valid UTF-8", "save the template as UTF-8");
  try {
    return ChatTemplate(std::make_shared<const jinja::Program>(jinja::parse_program(source)));
  } catch (jinja::Failure& failure) {
    return parse_error(std::move(failure));
  }
}

Result<std::string> ChatTemplate::render(const boost::json::value& context, const TemplateOptions& options) const {
  try {
    return jinja::Evaluator(*program_, options, context).run();
  } catch (jinja::Failure& failure) {
    return render_error(std::move(failure));
  }
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer) const {
  const auto text_of = [&](std::optional<TokenId> token) { return token ? tokenizer.token_bytes(*token) : std::string_view(); };
  boost::json::array conversation;
  for (const ChatMessage& message : messages) conversation.push_back({{"role", message.role}, {"content", message.content}});
  const boost::json::object context = {{"messages", std::move(conversation)},
                                       {"tools", nullptr},
                                       {"add_generation_prompt", true},
                                       {"bos_token", text_of(tokenizer.bos())},
                                       {"eos_token", text_of(tokenizer.eos())}};
  TemplateOptions options;
  options.now_s = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return render(context, options);
}

}  // namespace quire
