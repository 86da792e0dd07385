#include "text/template/chat_template.h"

#include <fmt/format.h>

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
    return fail(ErrorCode::too_large, kField, fmt::format("{} bytes; at most {} are read", source.size(), kMaxSourceBytes));
  if (!is_valid_utf8(source)) return fail(ErrorCode::invalid_argument, kField, "not UTF-8");
  try {
    return ChatTemplate(std::make_shared<const jinja::Program>(jinja::parse_program(source)));
  } catch (jinja::Failure& failure) {
    return to_error(std::move(failure), "give another template");
  }
}

Result<std::string> ChatTemplate::render(const boost::json::value& context, const TemplateOptions& options) const {
  try {
    return jinja::Evaluator(*program_, options, context).run();
  } catch (jinja::Failure& failure) {
    return to_error(std::move(failure), {});
  }
}

}  // namespace quire
