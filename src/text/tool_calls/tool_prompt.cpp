// Writes tools and calls as text, for templates that do not support tools or calls. Called by the server for each conversation with tools
// before it renders the template. The functions depend only on the request's JSON. Messages that the template supports stay unchanged.
#include "text/tool_calls/tool_prompt.h"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <string_view>
#include <utility>

#include "base/json_writer.h"
#include "text/tool_calls/call_rounds.h"
#include "text/tool_calls/harmony_delimiters.h"
#include "text/tool_calls/message_text.h"

namespace quire {

namespace json = boost::json;

namespace {

// Appends JSON with white space as Python writes it, which models know from training.
void append_spaced(std::string& out, const json::value& value) {
  if (value.is_object()) {
    out += '{';
    const char* comma = "";
    for (const auto& [key, field] : value.get_object()) {
      out += std::exchange(comma, ", ");
      append_json_string(out, key);
      out += ": ";
      append_spaced(out, field);
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    const char* comma = "";
    for (const json::value& item : value.get_array()) {
      out += std::exchange(comma, ", ");
      append_spaced(out, item);
    }
    out += ']';
  } else {
    out += json::serialize(value);
  }
}

std::string spaced(const json::value& value) {
  std::string out;
  append_spaced(out, value);
  return out;
}

struct EarlierCall {
  std::string name;
  json::value arguments;
};

EarlierCall earlier_call(const json::value& call) {
  const json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
  EarlierCall earlier{.name = {}, .arguments = json::object()};
  if (function == nullptr || !function->is_object()) return earlier;
  if (const json::value* name = function->get_object().if_contains("name"); name != nullptr && name->is_string())
    earlier.name = name->get_string();
  if (const json::value* arguments = function->get_object().if_contains("arguments")) earlier.arguments = *arguments;
  return earlier;
}

std::string call_object(const CallFormat& format, const EarlierCall& call) {
  const char* key = format.style == CallStyle::llama ? "parameters" : "arguments";
  return fmt::format(R"({{"name": {}, "{}": {}}})", json_string(call.name), key, spaced(call.arguments));
}

std::string pythonic_call(const EarlierCall& call) {
  std::string text = call.name + "(";
  if (call.arguments.is_object())
    for (const auto& [key, value] : call.arguments.get_object())
      text += fmt::format("{}{}={}", text.back() == '(' ? "" : ", ", std::string_view(key), spaced(value));
  return text + ")";
}

// Writes calls in sections, in the formats of DeepSeek and Kimi.
std::string section_calls(const CallFormat& format, const std::vector<EarlierCall>& calls) {
  const SectionDelimiters delimiters = section_delimiters(format.style);
  std::string text(delimiters.begin);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string arguments = spaced(calls[i].arguments);
    text += delimiters.call;
    if (format.style == CallStyle::deepseek)
      text += fmt::format("function{}{}\n```json\n{}\n```", delimiters.separator, calls[i].name, arguments);
    else if (format.style == CallStyle::kimi)
      text += fmt::format("functions.{}:{}{}{}", calls[i].name, i, delimiters.separator, arguments);
    else
      text += calls[i].name + std::string(delimiters.separator) + arguments;
    text += delimiters.call_end;
    if (format.style == CallStyle::deepseek && i + 1 < calls.size()) text += '\n';
  }
  return text + std::string(delimiters.end);
}

// Writes one Harmony message per call.
std::string messages_of_calls(const std::vector<EarlierCall>& calls) {
  using namespace harmony;
  std::string text;
  for (const EarlierCall& call : calls) {
    if (!text.empty()) text += std::string(kStart) + "assistant";
    text +=
        fmt::format("{}commentary to=functions.{} {}json{}{}{}", kChannel, call.name, kConstrain, kMessage, spaced(call.arguments), kCall);
  }
  return text;
}

// Returns an id of nine letters and digits: the given id if it has this form, otherwise the beginning of its hash (FNV-1a).
std::string short_id(std::string_view id) {
  std::string kept;
  for (const char c : id)
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) kept += c;
  if (kept.size() == 9 && kept.size() == id.size()) return kept;
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return fmt::format("{:016x}", hash).substr(0, 9);
}

void shorten_id(json::object& object, std::string_view name) {
  json::value* id = object.if_contains(name);
  if (id != nullptr && id->is_string()) *id = short_id(id->get_string());
}

void shorten_ids(json::object& message) {
  shorten_id(message, "tool_call_id");
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (json::value& call : calls->get_array())
    if (call.is_object()) shorten_id(call.get_object(), "id");
}

void write_arguments(json::object& message) {
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  for (json::value& call : calls->get_array()) {
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    json::value* arguments = function != nullptr && function->is_object() ? function->get_object().if_contains("arguments") : nullptr;
    if (arguments != nullptr && arguments->is_object()) *arguments = json::value(spaced(*arguments));
  }
}

void show_tools(const CallFormat& format, const json::array& tools, json::array& messages) {
  const std::string text = describe_tools(format, tools);
  if (!messages.empty() && messages.front().is_object() && has_role(messages.front().get_object(), "system"))
    return put_after(messages.front().get_object(), text);
  messages.insert(messages.begin(), json::object{{"role", "system"}, {"content", text}});
}

}  // namespace

std::string describe_tools(const CallFormat& format, const json::array& tools) {
  std::string text = "You may call these functions:\n";
  for (const json::value& tool : tools) text += spaced(tool) + "\n";
  json::object function{{"name", "function_name"}, {"arguments", json::object{{"argument", "value"}}}};
  const json::array example{json::object{{"function", std::move(function)}}};
  text += "\nTo call a function, answer with this and nothing else, with the function's name and its arguments:\n";
  text += write_calls(format, example);
  if (format.style == CallStyle::plain) text += "\nTo call several, answer with a JSON array of such objects.";
  return text + "\nWhere no function helps, answer in plain words.";
}

std::string write_calls(const CallFormat& format, const json::array& calls) {
  std::vector<EarlierCall> earlier;
  for (const json::value& call : calls) earlier.push_back(earlier_call(call));
  if (format.style == CallStyle::harmony) return messages_of_calls(earlier);
  if (!section_delimiters(format.style).begin.empty()) return section_calls(format, earlier);
  const bool is_each = format.style == CallStyle::marked && !format.is_list;
  const bool is_list = format.style == CallStyle::pythonic || format.style == CallStyle::mistral || format.is_list ||
                       (format.style == CallStyle::plain && earlier.size() > 1);
  std::string text = is_each || format.style == CallStyle::llama ? "" : format.open;
  if (is_list) text += '[';
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    if (i > 0) text += is_list ? ", " : "\n";
    if (is_each) text += format.open + "\n";
    text += format.style == CallStyle::pythonic ? pythonic_call(earlier[i]) : call_object(format, earlier[i]);
    if (is_each) text += "\n" + format.close;
  }
  if (is_list) text += ']';
  return is_each ? text : text + format.close;
}

void adapt_messages(const CallFormat& format, const json::value& tools, json::array& messages) {
  if (format.shows_calls) gather_results(messages);
  if (format.shows_calls) fill_ids(messages, format.style == CallStyle::kimi);
  if (format.style == CallStyle::harmony && format.shows_calls) split_calls(messages);
  for (json::value& value : messages) {
    if (!value.is_object()) continue;
    json::object& message = value.get_object();
    if (format.wants_short_ids) shorten_ids(message);
    if (format.wants_text_arguments) write_arguments(message);
    const json::value* calls = message.if_contains("tool_calls");
    if (!format.shows_calls && calls != nullptr && calls->is_array()) {
      std::string said = text_of(message);
      if (!said.empty()) said += '\n';
      message["content"] = said.append(write_calls(format, calls->get_array()));
      message.stable_erase("tool_calls");
    }
    if (!format.shows_results && has_role(message, "tool")) {
      json::value& content = message["content"];
      if (content.is_array()) {
        json::array& parts = content.get_array();
        parts.insert(parts.begin(), json::object{{"type", "text"}, {"text", "<tool_response>\n"}});
        parts.push_back(json::object{{"type", "text"}, {"text", "\n</tool_response>"}});
      } else {
        content = "<tool_response>\n" + text_of(message) + "\n</tool_response>";
      }
      message["role"] = "user";
    }
  }
  if (!format.shows_tools && tools.is_array() && !tools.get_array().empty()) show_tools(format, tools.get_array(), messages);
}

}  // namespace quire
