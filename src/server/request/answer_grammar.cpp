// Builds one grammar for everything that a chat's answer may contain: reasoning, tool calls, and the output form that the client requested.
// Called by prepare.cpp when a request's prompt is known, on the server's thread or in the job pool. This code inserts a client's text into
// the grammar, so strings are quoted and forms become separate rules.
#include "server/request/answer_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "server/request/answer_shape.h"
#include "server/request/completion_request.h"
#include "server/request/served_model.h"
#include "text/tool_calls/call_grammar.h"
#include "text/tool_calls/loose_schema.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxSchemaDepth = 128;

// Returns the rule body for a JSON schema. `spelling` replaces the settings for the grammar library ("x-guidance") that the client may have
// sent. An invalid schema is refused later, when it is compiled.
std::string schema_rule(const std::string& schema, const json::object& spelling = {}) {
  json::error_code failed;
  json::value value = json::parse(schema, failed, {}, {.max_depth = kMaxSchemaDepth});
  if (failed) return "%json " + schema;
  if (value == json::value(true)) value = json::object();
  if (value.is_object()) value.get_object().erase("x-guidance");
  if (value.is_object() && !spelling.empty()) value.get_object()["x-guidance"] = spelling;
  return "%json " + json::serialize(value);
}

// Returns the rule body for a regular expression: the expression between slashes.
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

std::string form_rule(const OutputForm& form) {
  const StructuredOutput& wanted = form.wanted;
  switch (wanted.kind) {
    case StructuredOutput::Kind::json_schema:
      return schema_rule(wanted.text, form.spelling);
    case StructuredOutput::Kind::regex:
      return regex_rule(wanted.text);
    case StructuredOutput::Kind::lark:
      break;
  }
  return "%lark {\n" + wanted.text + "\n}";
}

// Returns the grammar of an answer with any text and any number of tags. Equals vLLM's grammar for llguidance (StructTag.to_grammar).
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
  return {.parallel = request.tool_use.parallel, .in_reasoning = request.in_reasoning, .token = [&model](std::string_view text) {
            return model.single_token(text);
          }};
}

// Returns the token that ends the reasoning if the prompt has begun a reasoning part. Returns nullopt if the end is not a single token. The
// grammar can begin after such a token.
std::optional<TokenId> reasoning_end_token(const CompletionRequest& request, const ServedModel& model) {
  return request.in_reasoning ? model.single_token(model.call_format().think_close) : std::nullopt;
}

// Constrains an answer that may have reasoning before the text in the client's form.
void constrain_after_reasoning(CompletionRequest& request, const ServedModel& model) {
  const CallFormat& format = model.call_format();
  if (!request.form || request.api != Api::chat || format.think_open.empty()) return;
  StructuredOutput& wanted = request.form->wanted;
  CallGrammarOptions options = grammar_options(request, model);
  const auto end = reasoning_end_token(request, model);
  options.is_after_reasoning = end.has_value();
  wanted.text = form_grammar(format, form_rule(*request.form), options);
  wanted.kind = StructuredOutput::Kind::lark;
  if (end) wanted.begin_after = {*end};
}

// The start of the grammar for calls: the answer's first token, or the token after the tokens in `begin_after`.
struct GrammarStart {
  CallGrammarOptions options;
  std::vector<TokenId> begin_after;
};

// Returns nullopt if the grammar could not distinguish reasoning from calls.
std::optional<GrammarStart> grammar_start(const CompletionRequest& request, const ServedModel& model, bool is_required) {
  const CallFormat& format = model.call_format();
  GrammarStart start{.options = grammar_options(request, model), .begin_after = {}};
  start.options.is_required = is_required;
  const bool is_marked = !format.open.empty() && format.style != CallStyle::llama;
  // While the grammar has not begun, free text (including reasoning) costs no time for masks.
  if (!is_required && is_marked)
    if (const auto delimiter = model.single_token(format.open)) {
      start.options.is_after_delimiter = true;
      start.begin_after = {*delimiter};
      return start;
    }
  if (const auto end = reasoning_end_token(request, model)) {
    start.options.is_after_reasoning = true;
    start.begin_after = {*end};
    return start;
  }
  if (is_required || is_marked || format.style == CallStyle::harmony) return start;
  return format.think_open.empty() ? std::optional(std::move(start)) : std::nullopt;
}

// Reports a constraint that is not enforced: adds the field to `ignored` and the reason to `warnings`.
void warn(CompletionRequest& request, std::string_view field, const std::string& why, std::string_view instead) {
  const std::string name = request.shape->with_client_field_names({ErrorCode::invalid_argument, std::string(field), "", ""}).field;
  if (request.ignored.size() < kMaxIgnored) request.ignored.push_back(name);
  if (request.warnings.size() < kMaxIgnored) request.warnings.push_back(fmt::format("{}: {}; {}", name, why, instead));
}

Result<void> check_arguments(const Tool& tool, const ServedModel& model) {
  const json::value* type = tool.parameters.is_object() ? tool.parameters.get_object().if_contains("type") : nullptr;
  const bool is_object = type == nullptr || *type == "object" ||
                         (type->is_array() && std::ranges::find(type->get_array(), json::value("object")) != type->get_array().end());
  if (!is_object)
    return fail(ErrorCode::invalid_argument, "", "#: 'type' is " + describe(*type) + ", but arguments must be an object",
                "use the type 'object'");
  return model.check_schema(schema_of_arguments(tool), !tool.strict);
}

// Checks the schemas of the tools. If a schema cannot be enforced, a strict tool fails the request; for another tool, any object is
// accepted as arguments and a warning is added.
Result<void> check_tools(CompletionRequest& request, const ServedModel& model) {
  for (Tool& tool : request.tool_use.tools) {
    const auto checked = check_arguments(tool, model);
    if (checked) continue;
    const std::string field = fmt::format("tools[{}].function.parameters", tool.index);
    const std::string why = fmt::format("the schema of '{}' cannot be enforced: {}", tool.name, checked.error().message);
    if (tool.strict) return fail(checked.error().code, field, why, "fix the schema, or leave out 'strict'");
    warn(request, field, why, "its arguments may be any object");
    tool.parameters = any_arguments();
  }
  return {};
}

// Checks the schema of a form that is not strict. If it cannot be enforced, enforces the enforceable part of the schema or, if that fails,
// any JSON, and adds a warning.
void check_form(CompletionRequest& request, const ServedModel& model) {
  if (!request.form || request.form->is_strict || request.form->wanted.kind != StructuredOutput::Kind::json_schema) return;
  OutputForm& form = *request.form;
  const auto checked = model.check_schema(form.wanted.text, false);
  if (checked) return;
  json::error_code failed;
  json::value loose = json::parse(form.wanted.text, failed, {}, {.max_depth = kMaxSchemaDepth});
  if (!failed) loosen_schema(loose);
  const bool is_held = !failed && model.check_schema(json::serialize(loose), true).has_value();
  form.wanted.text = is_held ? json::serialize(loose) : "{}";
  if (is_held) form.spelling["lenient"] = true;
  warn(request, form.field == "response_format" ? "response_format.json_schema.schema" : form.field, checked.error().message,
       is_held ? "the rest of the schema is enforced" : "the answer may be any JSON");
}

// Rewrites a JSON schema with spelling settings as a Lark grammar, because a Lark grammar can contain the settings.
void spell_form(CompletionRequest& request) {
  if (!request.form || request.form->wanted.kind != StructuredOutput::Kind::json_schema || request.form->spelling.empty()) return;
  request.form->wanted.text = "start: " + form_rule(*request.form);
  request.form->wanted.kind = StructuredOutput::Kind::lark;
}

}  // namespace

Result<void> constrain_answer(CompletionRequest& request, const ServedModel& model, bool one_call_spelling) {
  if (has_structured_output()) check_form(request, model);
  if (request.form && !request.form->tags.empty()) request.form->wanted.text = tags_grammar(std::exchange(request.form->tags, {}), model);
  const ToolUse& use = request.tool_use;
  if (use.choice == ToolUse::Choice::none || use.tools.empty()) {
    constrain_after_reasoning(request, model);
    spell_form(request);
    return {};
  }
  const bool is_required = use.choice == ToolUse::Choice::required;
  if (request.form && request.form->wanted.kind != StructuredOutput::Kind::json_schema) {
    return fail(ErrorCode::unsupported, request.form->field, "cannot be combined with tools that the model may call",
                "send only one of them");
  }
  // An answer with required calls has no message to which the form could apply.
  if (is_required) request.form.reset();
  if (!is_required && !request.form && !has_structured_output()) return {};
  if (has_structured_output())
    if (const auto checked = check_tools(request, model); !checked) return checked;
  auto start = grammar_start(request, model, is_required || request.form);
  if (!start) return {};
  start->options.is_canonical = one_call_spelling;
  if (request.form) start->options.otherwise = schema_rule(request.form->wanted.text, request.form->spelling);
  const std::string field = is_required ? "tool_choice" : (request.form ? request.form->field : "tools");
  request.form = OutputForm{.wanted = {.kind = StructuredOutput::Kind::lark,
                                       .text = call_grammar(model.call_format(), use.tools, start->options),
                                       .begin_after = std::move(start->begin_after)},
                            .field = field};
  return {};
}

}  // namespace quire
