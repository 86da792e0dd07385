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

std::unexpected<Error> to_error(jinja::Failure failure, std::string remedy) {
  if (failure.line == 0) return fail(failure.code, "messages", std::move(failure.message));
  return fail(failure.code, kField, fmt::format("line {}: {}", failure.line, failure.message), std::move(remedy));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return fail(ErrorCode::too_large, kField, fmt::format("has {} bytes, more than the maximum of {}", source.size(), kMaxSourceBytes));
  if (!is_valid_utf8(source)) return fail(ErrorCode::invalid_argument, kField, "is not valid UTF-8");
  try {
    return ChatTemplate(std::make_shared<const jinja::Program>(jinja::parse_program(source)));
  } catch (jinja::Failure& failure) {
    return to_error(std::move(failure), "use another template");
  }
}

Result<std::string> ChatTemplate::render(const boost::json::value& context, const TemplateOptions& options) const {
  try {
    return jinja::Evaluator(*program_, options, context).run();
  } catch (jinja::Failure& failure) {
    return to_error(std::move(failure), {});
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
