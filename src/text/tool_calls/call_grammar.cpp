// Builds the grammar that restricts an answer to a model's format of calls and to the tools' schemas. Called by the server for each request
// with tools. All functions are pure. The grammar must accept only what AnswerParser reads as calls, and everything that the schemas allow.
// If a schema is too large for llguidance and the tool is not strict, the grammar accepts any arguments.
#include "text/tool_calls/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "base/append_format.h"
#include "base/json_writer.h"
#include "text/tool_calls/argument_rules.h"
#include "text/tool_calls/harmony_delimiters.h"
#include "text/tool_calls/loose_schema.h"

namespace quire {

namespace json = boost::json;

namespace {

// Builds the rules of one grammar. The rule `start` depends on where the grammar begins.
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
  // Builds a grammar without calls: the answer must match `body`.
  std::string make_form(std::string_view body) {
    if (format_.style == CallStyle::harmony) return make_messages(true, body);
    add("form", body);
    add("start", thought() + "form");
    return whole();
  }

 private:
  // Builds the Harmony grammar: messages of the channels analysis and commentary, then a tool call or a final message. `final` is the rule
  // body of the final message; empty: free text. With `only_held`, commentary is not allowed, and without `final` the answer must be a tool
  // call.
  std::string make_messages(bool only_held, std::string_view final) {
    using namespace harmony;
    const std::string again = delimiter(kStart) + " \"assistant\"";
    up_to("noted", kMessage, kEnd);
    add("note", fmt::format("{} {} noted {}", delimiter(kChannel), only_held ? R"("analysis")" : R"(("analysis" | "commentary"))", again));
    if (!final.empty()) add("form", final);
    const bool may_say = !only_held || !final.empty();
    if (may_say) add("said", fmt::format("{} \"final\" {} {}", delimiter(kChannel), delimiter(kMessage), final.empty() ? "TEXT" : "form"));
    if (options_.in_reasoning && !options_.is_after_reasoning) up_to("thought", {}, kEnd);
    const std::string begin = options_.is_after_reasoning ? again + " " : options_.in_reasoning ? "thought " + again + " " : "";
    if (!tools_.empty()) add("calls", several("call", fmt::format("({} | {}) {}", delimiter(kCall), delimiter(kEnd), again)));
    const std::string_view last = tools_.empty() ? "said" : may_say ? "(said | calls)" : "calls";
    add("start", fmt::format("{}note* {}", begin, last));
    return whole();
  }

  // Maximum size of all schemas. llguidance allows 65,535 symbols per grammar, and the schemas with the most symbols have about three per
  // hundred bytes.
  static constexpr std::size_t kMaxSchemaBytes = 128 * 1024;
  // Maximum number of properties of a schema. Each property may come next, and llguidance considers at most 2,000 items per token.
  static constexpr std::size_t kMaxProperties = 500;

  [[nodiscard]] std::size_t num_schema_bytes() const {
    std::size_t num_bytes = 0;
    for (const Tool& tool : tools_) num_bytes += json::serialize(tool.parameters).size();
    return num_bytes;
  }
  // Returns whether the grammar restricts only the tool's name, not its arguments.
  [[nodiscard]] bool is_loose(const Tool& tool) const {
    return !tool.strict && (is_too_much_ || num_properties(tool) > kMaxProperties || tool.parameters == any_arguments());
  }
  void add_any_arguments() {
    if (format_.style == CallStyle::pythonic)
      any_python_arguments(rules_, options_.is_canonical);
    else if (is_tagged())
      any_tagged_arguments(rules_, argument_tags());
    else
      add("any_args", "%json " + schema_of_arguments(Tool{.name = {}, .parameters = any_arguments()}, options_.is_canonical));
  }

  [[nodiscard]] bool is_tagged() const { return format_.style == CallStyle::xml || format_.style == CallStyle::glm; }
  // Returns the rule body for a line feed between tags. Without is_canonical, the line feed is optional. With is_canonical, the format
  // decides whether the line feed is required or forbidden.
  [[nodiscard]] std::string line_feed() const {
    if (!options_.is_canonical) return R"(/\n?/)";
    return format_.is_tight ? "" : R"("\n")";
  }
  [[nodiscard]] ArgumentTags argument_tags() const {
    if (format_.style == CallStyle::glm) {
      const auto head = [this](std::string_view key) {
        return fmt::format("{} {} {} {} {}", delimiter(kArgKey), key, delimiter(kArgKeyEnd), line_feed(), delimiter(kArgValue));
      };
      return {.head = [head](std::string_view key) { return head(json_string(key)); },
              .any_head = head("/[^<>\\n]+/"),
              .end = delimiter(kArgValueEnd),
              .separator = line_feed(),
              .end_text = is_token(kArgValueEnd) ? "" : std::string(kArgValueEnd)};
    }
    const std::string_view feed = format_.is_tight ? "" : "\n";
    const std::string end = fmt::format("{}</parameter>\n", feed);
    return {.head = [feed](std::string_view key) { return json_string(fmt::format("<parameter={}>{}", key, feed)); },
            .any_head = format_.is_tight ? R"(/<parameter=[^<>\n]+>/)" : R"(/<parameter=[^<>\n]+>\n/)",
            .end = json_string(end),
            .separator = {},
            .end_text = end};
  }

  [[nodiscard]] std::string whole() const { return "%llguidance {}\nTEXT: /(.|\\n)*/\n" + rules_; }
  void add(std::string_view name, std::string_view body) { append_format(rules_, "{}: {}\n", name, body); }

  // Returns the rule body for a delimiter: its token if it has one, otherwise its text.
  [[nodiscard]] std::string delimiter(std::string_view text) const {
    const auto token = options_.token ? options_.token(text) : std::nullopt;
    return token ? fmt::format("<[{}]>", *token) : json_string(text);
  }
  [[nodiscard]] bool is_token(std::string_view text) const { return options_.token && options_.token(text); }

  // Adds the rule `rule` for any text up to and including the delimiter `end`. If `before` is not empty, the text begins with the delimiter
  // `before`. Returns the rule's name.
  std::string up_to(std::string_view rule, std::string_view before, std::string_view end) {
    const std::string head = before.empty() ? "" : delimiter(before) + " ";
    if (is_token(end) || (!before.empty() && is_token(before)))
      add(rule, head + "TEXT " + delimiter(end));
    else
      add(fmt::format("{}[lazy]", rule), head + "TEXT " + delimiter(end));
    return std::string(rule);
  }
  // Returns the rule body for reasoning that may precede required calls.
  std::string thought() {
    if (format_.think_open.empty()) return {};
    if (options_.is_after_reasoning) return "/[ \\n]{0,4}/ ";
    up_to("thought", options_.in_reasoning ? std::string_view() : format_.think_open, format_.think_close);
    add("space", "/[ \\n]{0,4}/");
    return options_.in_reasoning ? "thought space " : "(thought space)? ";
  }

  [[nodiscard]] std::string alternatives(std::string_view prefix) const {
    std::string all = fmt::format("{}0", prefix);
    for (std::size_t i = 1; i < tools_.size(); ++i) append_format(all, " | {}{}", prefix, i);
    return all;
  }
  // Returns the rule body for one `item` or, if calls may be parallel, for one or more with `separator` (a literal or nothing) between
  // them.
  [[nodiscard]] std::string several(std::string_view item, std::string_view separator) const {
    return options_.parallel ? fmt::format("{0} ({1} {0})*", item, separator) : std::string(item);
  }
  [[nodiscard]] std::string_view arguments_key() const { return format_.style == CallStyle::llama ? "parameters" : "arguments"; }

  void add_call(std::size_t i) {
    const Tool& tool = tools_[i];
    const SectionDelimiters delimiters = section_delimiters(format_.style);
    const std::string arguments = is_loose(tool) ? "any_args" : fmt::format("args_{}", i);
    std::string body;
    switch (format_.style) {
      case CallStyle::mistral_v11:
        body = fmt::format("{} ({} {})? {} {}", json_string(tool.name), delimiter("[CALL_ID]"), kShortId, delimiter("[ARGS]"), arguments);
        break;
      case CallStyle::deepseek:
        add(fmt::format("named_{}", i), fmt::format(R"("function" {} {} {} "\n```" {})", delimiter(delimiters.separator),
                                                    json_string(tool.name + "\n```json\n"), arguments, delimiter(delimiters.call_end)));
        body = fmt::format("{} named_{}", delimiter(delimiters.call), i);
        break;
      case CallStyle::deepseek_v31:
        add(fmt::format("named_{}", i),
            fmt::format("{} {} {} {}", json_string(tool.name), delimiter(delimiters.separator), arguments, delimiter(delimiters.call_end)));
        body = fmt::format("{} named_{}", delimiter(delimiters.call), i);
        break;
      case CallStyle::kimi:
        add(fmt::format("named_{}", i), fmt::format("{} /[0-9]{{1,3}}/ {} {} {}", json_string("functions." + tool.name + ":"),
                                                    delimiter(delimiters.separator), arguments, delimiter(delimiters.call_end)));
        body = fmt::format("{} named_{}", delimiter(delimiters.call), i);
        break;
      case CallStyle::harmony: {
        const std::string form = fmt::format("(\" \" {}? \"json\")?", delimiter(harmony::kConstrain));
        body = fmt::format("({0} {1} | {2} {0} \"commentary\") {3} {4} {5}", delimiter(harmony::kChannel),
                           json_string("commentary to=functions." + tool.name), json_string(" to=functions." + tool.name), form,
                           delimiter(harmony::kMessage), arguments);
        break;
      }
      case CallStyle::pythonic:
        add(fmt::format("call_{}", i), fmt::format("{} {} \")\"", json_string(tool.name + "("), arguments));
        if (!is_loose(tool)) python_arguments(rules_, i, tool, options_.is_canonical);
        return;
      case CallStyle::xml:
      case CallStyle::glm:
        add(fmt::format("named_{}", i), format_.style == CallStyle::glm
                                            ? fmt::format("{} {}", line_feed(), arguments)
                                            : fmt::format(R"({} {} "</function>")", json_string(tool.name + ">\n"), arguments));
        if (!is_loose(tool)) tagged_arguments(rules_, argument_tags(), i, tool, options_.is_canonical);
        body = fmt::format("{} named_{}", json_string(format_.style == CallStyle::glm ? tool.name : "\n<function="), i);
        break;
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
    if (!is_loose(tool) && !is_tagged()) add(arguments, "%json " + schema_of_arguments(tool, options_.is_canonical));
  }
  // Returns the rule body for an optional id. Mistral's models have seen ids in calls of earlier turns and may therefore write ids.
  [[nodiscard]] std::string short_id() const {
    return format_.style == CallStyle::mistral ? fmt::format(R"( (", \"id\": \"" {} "\"")?)", kShortId) : "";
  }
  // Returns the beginning of a call in JSON, up to and including its name.
  static std::string name_part(const Tool& tool) { return fmt::format("{{\"name\": {}", json_string(tool.name)); }

  // Returns the rule body for the calls after their opening delimiter, if no other text may follow them.
  [[nodiscard]] std::string rest() const {
    const std::string close = format_.close.empty() ? "" : " " + delimiter(format_.close);
    const std::string list = fmt::format("\"[\" {} \"]\"", several("call", "\", \""));
    switch (format_.style) {
      case CallStyle::marked:
        return format_.is_list ? list + close : R"("\n" call "\n")" + close;
      case CallStyle::mistral:
        return "\" \"? " + list;
      case CallStyle::pythonic:
        return list + close;
      case CallStyle::xml:
        return R"(call "\n")" + close;
      case CallStyle::glm:
        return "call" + close;
      case CallStyle::deepseek:
      case CallStyle::deepseek_v31:
      case CallStyle::kimi:
        return several("call", format_.style == CallStyle::deepseek ? R"("\n")" : "") + " " +
               delimiter(section_delimiters(format_.style).end);
      default:
        return "call";
    }
  }
  // Returns whether several calls are allowed and each has separate delimiters.
  [[nodiscard]] bool repeats() const {
    const bool each = (format_.style == CallStyle::marked && !format_.is_list) || is_tagged() || format_.style == CallStyle::mistral_v11;
    return each && options_.parallel;
  }
  std::string sections() {
    add("section", delimiter(format_.open) + " " + rest());
    if (!repeats()) return "section";
    if (format_.style == CallStyle::glm) return several("section", line_feed());
    return several("section", format_.style == CallStyle::mistral_v11 ? "" : R"("\n")");
  }
  // Returns the rule body for an answer that consists only of calls without delimiters.
  std::string bare_calls() {
    if (format_.style == CallStyle::pythonic) return fmt::format("\"[\" {} \"]\"", several("call", "\", \""));
    if (!options_.parallel) return "call";
    if (format_.style == CallStyle::llama) return std::string("call ") + kMoreLlamaCalls;
    return R"(call | "[" call (", " call)* "]")";
  }

  // Adds the rule `start` for an answer that is free text or begins with a call of one of the tools.
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
    const std::string more = format_.style == CallStyle::llama && options_.parallel ? kMoreLlamaCalls : "";
    const std::string marked = is_token(format_.open) ? fmt::format(" | {} call {}", delimiter(format_.open), more) : "";
    add("start", fmt::format("TEXT | ({}) {}{}", alternatives("first_"), more, marked));
  }
  // How a call in free text begins. llguidance's lexer takes the longest matching lexeme, and free text matches everything. The first
  // lexeme of a call must therefore extend to the point where the text can only be a call. `begin` is a regex for that lexeme, if it is the
  // same for all tools. `stop` is a regex for beginnings that free text must not have; empty if a token distinguishes calls from text.
  struct CallBegin {
    std::string begin, stop;
  };
  [[nodiscard]] CallBegin call_begin() const {
    const bool one = options_.is_canonical;
    const std::string_view space = one ? "" : R"([ \n]{0,4})";
    switch (format_.style) {
      case CallStyle::marked:
      case CallStyle::mistral: {
        const bool is_list = format_.is_list || format_.style == CallStyle::mistral;
        const std::string_view before = one       ? (is_list ? R"( ?\[\{)" : R"(\n\{)")
                                        : is_list ? R"([ \n]{0,4}\[[ \n]{0,4}\{)"
                                                  : R"([ \n]{0,4}\{)";
        const std::string begin = fmt::format(R"({}{}"name"{})", before, space, one ? R"(: ")" : R"( ?: ?")");
        return {begin, one ? R"([ \n]*[\[{])" : begin + first_letters()};
      }
      case CallStyle::xml: {
        const std::string begin = fmt::format("{}<function=", one ? R"(\n)" : space);
        return {begin, begin + first_letters()};
      }
      case CallStyle::glm:
        return {{}, fmt::format(R"({}({})[\n<])", space, names())};
      case CallStyle::pythonic:
        return {{}, fmt::format(R"({}\[({})\()", space, names())};
      case CallStyle::mistral_v11:
        return {{}, first_letters()};
      default: {
        const std::string_view call = section_delimiters(format_.style).call;
        if (is_token(call)) return {std::string(space), {}};
        const std::string begin = std::string(space) + regex_of(call);
        return {begin, begin};
      }
    }
  }
  // Returns a character class with the first letters of tool names. Contains all letters and digits, so that a call of an unknown tool is
  // not read as text.
  [[nodiscard]] std::string first_letters() const {
    std::string letters = "[A-Za-z0-9_";
    for (const char c : std::string_view("-.:/"))
      if (std::ranges::any_of(tools_, [c](const Tool& tool) { return tool.name.starts_with(c); })) letters += {'\\', c};
    return letters + "]";
  }
  [[nodiscard]] std::string names() const {
    std::string all;
    for (const Tool& tool : tools_) all += (all.empty() ? "" : "|") + regex_of(tool.name);
    return all;
  }
  static std::string regex_of(std::string_view text) {
    std::string regex;
    for (const char c : text) {
      if (std::string_view(R"(\.+*?()|[]{}^$/)").find(c) != std::string_view::npos) regex += '\\';
      regex += c;
    }
    return regex;
  }

  // Adds rules for the calls after their delimiter and the lexeme of call_begin(), and returns a rule body for the calls.
  std::string begun() {
    const std::string close = format_.close.empty() ? "" : " " + delimiter(format_.close);
    const std::string feed = options_.is_canonical ? R"("\n")" : R"(/[ \n]{0,4}/)";
    const std::string_view space = options_.is_canonical ? "" : R"([ \n]{0,4})";
    for (std::size_t i = 0; i < tools_.size(); ++i) {
      const std::string& name = tools_[i].name;
      std::string body = fmt::format("named_{}", i);
      if (format_.style == CallStyle::marked || format_.style == CallStyle::mistral)
        body = fmt::format("{} named_{}", json_string(name + "\""), i);
      else if (format_.style == CallStyle::glm)
        body = fmt::format("/{}{}/ named_{}", space, regex_of(name), i);
      else if (format_.style == CallStyle::pythonic)
        body = fmt::format(R"_(/{}\[{}\(/ {} ")")_", space, regex_of(name), is_loose(tools_[i]) ? "any_args" : fmt::format("args_{}", i));
      else if (format_.style == CallStyle::mistral_v11)
        body = fmt::format("call_{}", i);
      add(fmt::format("begun_{}", i), body);
    }
    const std::string first = fmt::format("({})", alternatives("begun_"));
    const auto more = [this](std::string_view separator) {
      return options_.parallel ? fmt::format(" ({} call)*", separator) : std::string();
    };
    switch (format_.style) {
      case CallStyle::marked:
        if (!format_.is_list) return first + " " + feed + close;
        [[fallthrough]];
      case CallStyle::mistral:
      case CallStyle::pythonic:
        return first + more("\", \"") + " \"]\"" + close;
      case CallStyle::xml:
        return first + " " + feed + close;
      case CallStyle::glm:
        return first + close;
      case CallStyle::mistral_v11:
        return first;
      default:
        return first + more(format_.style == CallStyle::deepseek ? R"("\n")" : "") + " " + delimiter(section_delimiters(format_.style).end);
    }
  }
  // Adds rules for text and for calls after their delimiters. A model may also write a delimiter without a call; OTHER is the text that may
  // then follow.
  void add_marked_text() {
    const auto [begin, stop] = call_begin();
    const SectionDelimiters delimiters = section_delimiters(format_.style);
    const bool names_call = !delimiters.call.empty() && is_token(delimiters.call);
    const std::string head = (begin.empty() ? "" : "/" + begin + "/ ") + (names_call ? delimiter(delimiters.call) + " " : "");
    add("begun", head + begun());
    const std::string unless = stop.empty() ? "" : fmt::format(R"( & ~/({})(.|\n)*/)", stop);
    add("OTHER", R"(/(.|\n)*/)" + unless);
    const std::string open = delimiter(format_.open);
    // Reasoning is free text too, but llguidance does not match control tokens as text, so the delimiters of reasoning need separate rules.
    const auto thoughts_behind = [this](std::string_view text) {
      std::string all;
      for (const std::string& thought : {format_.think_open, format_.think_close})
        if (!thought.empty() && is_token(thought)) append_format(all, " | {} {} free", text, delimiter(thought));
      return all;
    };
    std::string other_opened = "OTHER " + open;
    if (is_token(format_.open)) {
      add("free", fmt::format("TEXT | TEXT {} after{}", open, thoughts_behind("TEXT")));
    } else {
      up_to("opened", {}, format_.open);
      add("OTHER_OPENED", fmt::format(R"(/(.|\n)*{}/{})", regex_of(format_.open), unless));
      add("other_opened[lazy]", "OTHER_OPENED");
      add("free", "TEXT | opened after" + thoughts_behind("TEXT"));
      other_opened = "other_opened";
    }
    add("after", fmt::format("begun free | OTHER | {} after{}", other_opened, thoughts_behind("OTHER")));
    add("start", options_.is_after_delimiter ? "after" : "free");
  }

  static constexpr const char* kMoreLlamaCalls = R"((/[;,]/ /[ \n]{0,2}/ call)*)";
  static constexpr std::string_view kShortId = "/[a-zA-Z0-9]{9}/";
  const CallFormat& format_;
  const std::vector<Tool>& tools_;
  const CallGrammarOptions& options_;
  bool is_too_much_ = false;
  std::string rules_;
};

// Returns whether `properties` lists all required properties.
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

json::value any_arguments() {
  return {{"type", "object"}, {"additionalProperties", true}};
}

std::string schema_of_arguments(const Tool& tool, bool is_canonical) {
  json::value value = tool.parameters.is_object() ? tool.parameters : json::object();
  if (!tool.strict) loosen_schema(value);
  json::object& schema = value.get_object();
  const auto has = [&](std::string_view key) { return schema.contains(key); };
  const bool is_joined = has("$ref") || has("allOf") || has("anyOf") || has("oneOf") || has("if") || has("patternProperties");
  if ((!has("type") && !is_joined) || (has("type") && schema["type"].is_array())) schema["type"] = "object";
  // A function without parameters gets an empty list of properties, as in OpenAI's API.
  const json::value* properties = schema.if_contains("properties");
  const bool names_none = properties == nullptr || (properties->is_object() && properties->get_object().empty());
  const bool asks_for_more =
      is_joined || has("additionalProperties") || has("required") || has("minProperties") || has("propertyNames") || has("not");
  if (names_none && !asks_for_more) schema["properties"] = json::object();
  // If a schema lists properties without additionalProperties, the grammar allows no others. Otherwise a small model may invent properties
  // without end.
  if (!is_joined && has("properties") && !has("additionalProperties") && names_required(schema)) schema["additionalProperties"] = false;
  schema["x-guidance"] = json_settings(!tool.strict, is_canonical);
  return json::serialize(schema);
}

}  // namespace quire
