// The grammar that holds an answer to a model's format of calls and to the tools' schemas. Called by the server for each request with
// tools; pure functions. It must accept only what AnswerParser reads as calls, and all that the schemas allow; what is too large for
// llguidance is made wider step by step, never refused for a tool that is not strict.
#include "text/tool_calls/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "base/append_format.h"
#include "base/json_text.h"
#include "text/tool_calls/argument_rules.h"
#include "text/tool_calls/harmony_marks.h"
#include "text/tool_calls/loose_schema.h"

namespace quire {

namespace json = boost::json;

namespace {

// The rules of one grammar. `start` depends on where it begins; behind a mark that opens calls always comes `rest`.
class CallRules {
 public:
  CallRules(const CallFormat& format, const std::vector<Tool>& tools, const CallGrammarOptions& options)
      : format_(format), tools_(tools), options_(options) {}

  std::string make() {
    is_too_much_ = num_schema_bytes() > kMaxSchemaBytes;
    if (std::ranges::any_of(tools_, [this](const Tool& tool) { return is_loose(tool); })) add_any_arguments();
    for (std::size_t i = 0; i < tools_.size(); ++i) add_call(i);
    add("call", alternatives("call_"));
    if (format_.style == CallStyle::harmony) return make_messages(options_.is_required, options_.otherwise);
    const bool is_bare = format_.open.empty() || format_.style == CallStyle::plain || format_.style == CallStyle::llama;
    if (!is_bare) add("rest", rest());
    if (!options_.otherwise.empty()) add("otherwise", options_.otherwise);
    if (options_.is_required)
      add("start",
          fmt::format("{}({}{})", thought(), is_bare ? bare_calls() : sections(), options_.otherwise.empty() ? "" : " | otherwise"));
    else if (is_bare)
      add_bare_text();
    else
      add_marked_text();
    return whole();
  }
  // No calls, but a form.
  std::string make_form(std::string_view body) {
    if (format_.style == CallStyle::harmony) return make_messages(true, body);
    add("form", body);
    add("start", thought() + "form");
    return whole();
  }

 private:
  // Harmony: notes, which are thoughts or said on the way, and behind them a call or what is said in the end. `final`: what that must be, a
  // rule's body; only_held: it is not free text, and nothing is said before it.
  std::string make_messages(bool only_held, std::string_view final) {
    using namespace harmony;
    const std::string again = mark(kStart) + " \"assistant\"";
    up_to("noted", kMessage, kEnd);
    add("note", fmt::format("{} {} noted {}", mark(kChannel), only_held ? R"("analysis")" : R"(("analysis" | "commentary"))", again));
    if (!final.empty()) add("form", final);
    const bool may_say = !only_held || !final.empty();
    if (may_say) add("said", fmt::format("{} \"final\" {} {}", mark(kChannel), mark(kMessage), final.empty() ? "TEXT" : "form"));
    if (options_.in_thought && !options_.is_behind_thought) up_to("thought", {}, kEnd);
    const std::string begin = options_.is_behind_thought ? again + " " : options_.in_thought ? "thought " + again + " " : "";
    const std::string_view last = tools_.empty() ? "said" : may_say ? "(said | call)" : "call";
    add("start", fmt::format("{}note* {}", begin, last));
    return whole();
  }

  // llguidance has 65,535 symbols for a grammar; of the schemas that ask for most of them there are some three in a hundred bytes.
  static constexpr std::size_t kMaxSchemaBytes = 128 * 1024;
  // Each may come next, and llguidance looks at no more than 2,000 items for a token.
  static constexpr std::size_t kMaxProperties = 500;

  [[nodiscard]] std::size_t num_schema_bytes() const {
    std::size_t num_bytes = 0;
    for (const Tool& tool : tools_) num_bytes += json::serialize(tool.parameters).size();
    return num_bytes;
  }
  // Held to its name, and to arguments of any kind.
  [[nodiscard]] bool is_loose(const Tool& tool) const { return !tool.strict && (is_too_much_ || num_properties(tool) > kMaxProperties); }
  void add_any_arguments() {
    if (format_.style == CallStyle::pythonic)
      any_python_arguments(rules_, options_.one_spelling);
    else if (format_.style == CallStyle::xml)
      any_xml_arguments(rules_);
    else
      add("any_args", "%json " + schema_of_arguments(Tool{}, options_.one_spelling));
  }

  [[nodiscard]] std::string whole() const { return "%llguidance {}\nTEXT: /(.|\\n)*/\n" + rules_; }
  void add(std::string_view name, std::string_view body) { append_format(rules_, "{}: {}\n", name, body); }

  // A mark in a rule's body: its token, or its text.
  [[nodiscard]] std::string mark(std::string_view text) const {
    const auto token = options_.special ? options_.special(text) : std::nullopt;
    return token ? fmt::format("<[{}]>", *token) : json_string(text);
  }
  [[nodiscard]] bool is_token(std::string_view text) const { return options_.special && options_.special(text); }

  // Text up to a mark and with it. `before`: a mark that begins it.
  std::string up_to(std::string_view rule, std::string_view before, std::string_view end) {
    const std::string head = before.empty() ? "" : mark(before) + " ";
    if (is_token(end) || (!before.empty() && is_token(before)))
      add(rule, head + "TEXT " + mark(end));
    else
      add(fmt::format("{}[lazy]", rule), head + "TEXT " + mark(end));
    return std::string(rule);
  }
  // What may come before calls that must come.
  std::string thought() {
    if (format_.think_open.empty()) return {};
    if (options_.is_behind_thought) return "/[ \\n]{0,4}/ ";
    up_to("thought", options_.in_thought ? std::string_view() : format_.think_open, format_.think_close);
    add("space", "/[ \\n]{0,4}/");
    return options_.in_thought ? "thought space " : "(thought space)? ";
  }

  [[nodiscard]] std::string alternatives(std::string_view prefix) const {
    std::string all = fmt::format("{}0", prefix);
    for (std::size_t i = 1; i < tools_.size(); ++i) append_format(all, " | {}{}", prefix, i);
    return all;
  }
  // One of `item` or, where calls may be several, more with `separator` (a literal or nothing) before each.
  [[nodiscard]] std::string several(std::string_view item, std::string_view separator) const {
    return options_.parallel ? fmt::format("{0} ({1} {0})*", item, separator) : std::string(item);
  }
  [[nodiscard]] std::string_view arguments_key() const { return format_.style == CallStyle::llama ? "parameters" : "arguments"; }

  void add_call(std::size_t i) {
    const Tool& tool = tools_[i];
    const SectionMarks marks = section_marks(format_.style);
    const std::string arguments = is_loose(tool) ? "any_args" : fmt::format("args_{}", i);
    std::string body;
    switch (format_.style) {
      case CallStyle::mistral_v11:
        body = fmt::format("{} ({} {})? {} {}", json_string(tool.name), mark("[CALL_ID]"), kShortId, mark("[ARGS]"), arguments);
        break;
      case CallStyle::deepseek:
        body = fmt::format(R"({} "function" {} {} {} "\n```" {})", mark(marks.call), mark(marks.separator),
                           json_string(tool.name + "\n```json\n"), arguments, mark(marks.call_end));
        break;
      case CallStyle::deepseek_v31:
        body =
            fmt::format("{} {} {} {} {}", mark(marks.call), json_string(tool.name), mark(marks.separator), arguments, mark(marks.call_end));
        break;
      case CallStyle::kimi:
        body = fmt::format("{} {} /[0-9]{{1,3}}/ {} {} {}", mark(marks.call), json_string("functions." + tool.name + ":"),
                           mark(marks.separator), arguments, mark(marks.call_end));
        break;
      case CallStyle::harmony: {
        const std::string form = fmt::format("(\" \" {}? \"json\")?", mark(harmony::kConstrain));
        body = fmt::format("({0} {1} | {2} {0} \"commentary\") {3} {4} {5}", mark(harmony::kChannel),
                           json_string("commentary to=functions." + tool.name), json_string(" to=functions." + tool.name), form,
                           mark(harmony::kMessage), arguments);
        break;
      }
      case CallStyle::pythonic:
        add(fmt::format("call_{}", i), fmt::format("{} {} \")\"", json_string(tool.name + "("), arguments));
        if (!is_loose(tool)) python_arguments(rules_, i, tool, options_.one_spelling);
        return;
      case CallStyle::xml:
        add(fmt::format("call_{}", i), fmt::format(R"({} {} "</function>\n")", json_string("\n<function=" + tool.name + ">\n"), arguments));
        if (!is_loose(tool)) xml_arguments(rules_, i, tool, options_.one_spelling);
        return;
      case CallStyle::plain:
      case CallStyle::llama:
      case CallStyle::marked:
      case CallStyle::mistral:
        add(fmt::format("named_{}", i),
            fmt::format(R"({} {}{} "}}")", json_string(fmt::format(", \"{}\": ", arguments_key())), arguments, short_id()));
        body = fmt::format("{} named_{}", json_string(name_part(tool)), i);
        break;
    }
    add(fmt::format("call_{}", i), body);
    if (!is_loose(tool)) add(arguments, "%json " + schema_of_arguments(tool, options_.one_spelling));
  }
  // Mistral's models have seen ids in calls of earlier turns, and may write some.
  [[nodiscard]] std::string short_id() const {
    return format_.style == CallStyle::mistral ? fmt::format(R"( (", \"id\": \"" {} "\"")?)", kShortId) : "";
  }
  // Of a call that is a JSON object, up to its name.
  static std::string name_part(const Tool& tool) { return fmt::format("{{\"name\": {}", json_string(tool.name)); }

  // Behind the mark that opens calls.
  [[nodiscard]] std::string rest() const {
    const std::string close = format_.close.empty() ? "" : " " + mark(format_.close);
    const std::string list = fmt::format("\"[\" {} \"]\"", several("call", "\", \""));
    switch (format_.style) {
      case CallStyle::marked:
        return format_.is_list ? list + close : R"("\n" call "\n")" + close;
      case CallStyle::mistral:
        return "\" \"? " + list;
      case CallStyle::pythonic:
        return list + close;
      case CallStyle::xml:
        return "call" + close;
      case CallStyle::deepseek:
      case CallStyle::deepseek_v31:
      case CallStyle::kimi:
        return several("call", format_.style == CallStyle::deepseek ? R"("\n")" : "") + " " + mark(section_marks(format_.style).end);
      default:
        return "call";
    }
  }
  // Whether each call has marks of its own.
  [[nodiscard]] bool repeats() const {
    const bool each = (format_.style == CallStyle::marked && !format_.is_list) || format_.style == CallStyle::xml ||
                      format_.style == CallStyle::mistral_v11;
    return each && options_.parallel;
  }
  std::string sections() {
    add("section", mark(format_.open) + " rest");
    if (!repeats()) return "section";
    return several("section", format_.style == CallStyle::mistral_v11 ? "" : R"("\n")");
  }
  // Calls without marks, the whole answer.
  std::string bare_calls() {
    if (format_.style == CallStyle::pythonic) return fmt::format("\"[\" {} \"]\"", several("call", "\", \""));
    if (format_.style == CallStyle::llama || !options_.parallel) return "call";
    return R"(call | "[" call (", " call)* "]")";
  }

  // Text, until a call of one of the tools begins the answer.
  void add_bare_text() {
    const bool is_python = format_.style == CallStyle::pythonic;
    for (std::size_t i = 0; i < tools_.size(); ++i) {
      if (is_python) {
        add(fmt::format("opened_{}[lazy]", i), json_string("[" + tools_[i].name + "("));
        add(fmt::format("first_{}", i),
            fmt::format("opened_{0} {1} \")\" {2} \"]\"", i, is_loose(tools_[i]) ? "any_args" : fmt::format("args_{}", i),
                        options_.parallel ? "(\", \" call)*" : ""));
      } else {
        add(fmt::format("opened_{}[lazy]", i), json_string(name_part(tools_[i])));
        add(fmt::format("first_{}", i), fmt::format("opened_{0} named_{0}", i));
      }
    }
    add("start", "TEXT | " + alternatives("first_") + (is_token(format_.open) ? " | " + mark(format_.open) + " call" : ""));
  }
  // Text, and calls behind their marks.
  void add_marked_text() {
    up_to("opened", {}, format_.open);
    const std::string more = repeats() ? " (opened rest)* TEXT" : "";
    // A mark among what the model thinks must not end its answer.
    if (options_.behind_mark)
      add("start", "rest" + (more.empty() && !format_.think_open.empty() ? " TEXT" : more));
    else
      add("start", "TEXT | opened rest" + more);
  }

  static constexpr std::string_view kShortId = "/[a-zA-Z0-9]{9}/";
  const CallFormat& format_;
  const std::vector<Tool>& tools_;
  const CallGrammarOptions& options_;
  bool is_too_much_ = false;
  std::string rules_;
};

// Whether the required properties are among those that are named.
bool names_required(const json::object& schema) {
  const json::value* required = schema.if_contains("required");
  const json::value* properties = schema.if_contains("properties");
  if (required == nullptr || !required->is_array() || properties == nullptr || !properties->is_object()) return true;
  return std::ranges::all_of(required->get_array(), [&](const json::value& name) {
    return name.is_string() && properties->get_object().contains(name.get_string());
  });
}

}  // namespace

std::string call_grammar(const CallFormat& format, const std::vector<Tool>& tools, const CallGrammarOptions& options) {
  return CallRules(format, tools, options).make();
}

std::string form_grammar(const CallFormat& format, std::string_view body, const CallGrammarOptions& options) {
  static const std::vector<Tool> kNone;
  return CallRules(format, kNone, options).make_form(body);
}

std::string schema_of_arguments(const Tool& tool, bool one_spelling) {
  json::value value = tool.parameters.is_object() ? tool.parameters : json::object();
  if (!tool.strict) loosen_schema(value);
  json::object& schema = value.get_object();
  const auto has = [&](std::string_view key) { return schema.contains(key); };
  const bool is_joined = has("$ref") || has("allOf") || has("anyOf") || has("oneOf") || has("if") || has("patternProperties");
  if (!has("type") && !is_joined) schema["type"] = "object";
  // A schema of fields that says nothing of others means no others; a small model would go on making some up.
  if (!is_joined && has("properties") && !has("additionalProperties") && names_required(schema)) schema["additionalProperties"] = false;
  schema["x-guidance"] = json_spelling(!tool.strict, one_spelling);
  return json::serialize(schema);
}

}  // namespace quire
