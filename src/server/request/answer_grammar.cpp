// Makes one grammar of what may come in a chat's answer: thoughts, calls of tools, and the form that the client wants. Called by
// prepare.cpp once a request's prompt is known, on the server's thread or one of the job pool. A client's text goes into the grammar's text
// here: strings are quoted, forms become rules of their own.
#include "server/request/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "server/request/completion_request.h"
#include "server/request/served_model.h"
#include "text/tool_calls/call_grammar.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxSchemaDepth = 128;

// The body of a rule, without a client's settings for the library. What is no schema is refused when it is compiled.
std::string schema_rule(const std::string& schema) {
  json::error_code failed;
  json::value value = json::parse(schema, failed, {}, {.max_depth = kMaxSchemaDepth});
  if (failed) return "%json " + schema;
  if (value == json::value(true)) value = json::object();
  if (value.is_object()) value.get_object().erase("x-guidance");
  return "%json " + json::serialize(value);
}

// As it stands between slashes.
std::string regex_rule(const std::string& regex) {
  std::string rule = "/";
  bool is_escaped = false;
  for (const char c : regex) {
    if (c == '/' && !is_escaped) rule += '\\';
    is_escaped = c == '\\' && !is_escaped;
    if (c == '\n')
      rule += "\\n";
    else
      rule += c;
  }
  return rule + "/";
}

std::string form_rule(const StructuredOutput& wanted) {
  switch (wanted.kind) {
    case StructuredOutput::Kind::json_schema:
      return schema_rule(wanted.text);
    case StructuredOutput::Kind::regex:
      return regex_rule(wanted.text);
    case StructuredOutput::Kind::lark:
      break;
  }
  return "%lark {\n" + wanted.text + "\n}";
}

// As vLLM has it of llguidance (StructTag.to_grammar): any text, and in it, any number of times, a tag.
std::string tags_grammar(const std::vector<StructuralTag>& tags, const ServedModel& model) {
  std::string start = "start: (", rules;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    const StructuralTag& tag = tags[i];
    const auto quoted = [](std::string_view text) { return text.empty() ? std::string() : json_string(text) + " "; };
    start += fmt::format("{}tag_{}", i == 0 ? "" : " | ", i);
    const std::string body = quoted(tag.begin.substr(tag.trigger.size())) + schema_rule(tag.schema) + " " + quoted(tag.end);
    if (model.control_token(tag.trigger))
      rules += fmt::format("tag_{}: TAG_TEXT {} {}\n", i, tag.trigger, body);
    else
      rules += fmt::format("tag_{0}_trigger[lazy]: TAG_TEXT {1}\ntag_{0}: tag_{0}_trigger {2}\n", i, quoted(tag.trigger), body);
  }
  return start + ")* tag_end\ntag_end: TAG_TEXT\nTAG_TEXT: /(.|\\n)*/\n" + rules;
}

CallGrammarOptions grammar_options(const CompletionRequest& request, const ServedModel& model) {
  return {.parallel = request.tool_use.parallel, .in_thought = request.in_thought, .special = [&model](std::string_view text) {
            return model.control_token(text);
          }};
}

// What closes a thought that the prompt has begun, if it is one token: a grammar may then begin behind it.
std::optional<TokenId> thought_end(const CompletionRequest& request, const ServedModel& model) {
  return request.in_thought ? model.single_token(model.call_format().think_close) : std::nullopt;
}

// The client's form, where the model may think first.
void hold_behind_thoughts(CompletionRequest& request, const ServedModel& model) {
  const CallFormat& format = model.call_format();
  if (!request.form || request.api != Api::chat || format.think_open.empty()) return;
  StructuredOutput& wanted = request.form->wanted;
  CallGrammarOptions options = grammar_options(request, model);
  const auto end = thought_end(request, model);
  options.is_behind_thought = end.has_value();
  wanted.text = form_grammar(format, form_rule(wanted), options);
  wanted.kind = StructuredOutput::Kind::lark;
  if (end) wanted.begin_after = {*end};
}

// Where an answer must be a call, or may be one: whether the grammar is to begin with its first token, and if not, behind which.
struct GrammarStart {
  CallGrammarOptions options;
  std::vector<TokenId> begin_after;
};

// nullopt: what the model thinks could not be told from calls.
std::optional<GrammarStart> grammar_start(const CompletionRequest& request, const ServedModel& model, bool is_required) {
  const CallFormat& format = model.call_format();
  GrammarStart start{.options = grammar_options(request, model), .begin_after = {}};
  start.options.is_required = is_required;
  if (const auto end = thought_end(request, model)) {
    start.options.is_behind_thought = true;
    start.begin_after = {*end};
    return start;
  }
  if (is_required || format.style == CallStyle::harmony) return start;
  // Free text costs nothing while the grammar has not begun.
  const auto mark = format.open.empty() || format.style == CallStyle::llama ? std::nullopt : model.single_token(format.open);
  if (mark) {
    start.options.behind_mark = true;
    start.begin_after = {*mark};
    return start;
  }
  return format.think_open.empty() ? std::optional(std::move(start)) : std::nullopt;
}

}  // namespace

Result<void> constrain_answer(CompletionRequest& request, const ServedModel& model, bool one_call_spelling) {
  if (request.form && !request.form->tags.empty()) request.form->wanted.text = tags_grammar(std::exchange(request.form->tags, {}), model);
  const ToolUse& use = request.tool_use;
  if (use.choice == ToolUse::Choice::none || use.tools.empty()) {
    hold_behind_thoughts(request, model);
    return {};
  }
  const bool is_required = use.choice == ToolUse::Choice::required;
  if (request.form && request.form->wanted.kind != StructuredOutput::Kind::json_schema) {
    return fail(ErrorCode::unsupported, request.form->field, "is given together with tools that are called instead",
                "ask for one of them at a time");
  }
  // It says what a message looks like, and there will be none.
  if (is_required) request.form.reset();
  if (!is_required && !request.form && !has_structured_output()) return {};
  auto start = grammar_start(request, model, is_required || request.form);
  if (!start) return {};
  start->options.one_spelling = one_call_spelling;
  if (request.form) start->options.otherwise = schema_rule(request.form->wanted.text);
  const std::string field = is_required ? "tool_choice" : (request.form ? request.form->field : "tools");
  request.form = OutputForm{.wanted = {.kind = StructuredOutput::Kind::lark,
                                       .text = call_grammar(model.call_format(), use.tools, start->options),
                                       .begin_after = std::move(start->begin_after)},
                            .field = field};
  return {};
}

}  // namespace quire
