#pragma once
// Generates random answers with calls as models write them in each format, together with the expected result of parsing.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/json_writer.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/harmony_delimiters.h"
#include "text/tool_calls/tool.h"

namespace quire::test {

struct WrittenCall {
  std::string name;
  boost::json::object arguments;
};

class CallWriting {
 public:
  struct Counts {
    std::size_t num_answers = 0, num_calls = 0, num_values = 0;
    std::set<std::string> spellings;  // used by values
  };
  struct Answer {
    std::vector<Tool> tools;
    std::vector<WrittenCall> calls;
    std::string text;           // the whole answer
    std::string said, thought;  // the text outside the calls
  };

  // `format`, `random` and `counts` must outlive the object.
  CallWriting(const CallFormat& format, std::mt19937_64& random, Counts& counts) : format_(format), random_(random), counts_(counts) {}

  static std::vector<Tool> two_tools() {
    return {{.name = "get_weather",
             .parameters = {{"type", "object"},
                            {"properties", {{"city", {{"type", "string"}}}, {"days", {{"type", "integer"}}}}},
                            {"required", {"city"}}},
             .strict = false},
            {.name = "clock", .parameters = {{"type", "object"}, {"properties", boost::json::object()}}, .strict = false}};
  }

  // Adds text around the calls and reasoning before them, if the format and the request allow them.
  Answer answer(bool is_required) {
    Answer answer;
    const std::size_t num_calls = 1 + below(max_calls());
    for (std::size_t i = 0; i < num_calls; ++i) answer.calls.push_back(call(answer.tools));
    const bool is_marked = !format_.open.empty() && format_.style != CallStyle::llama;
    const bool has_text = is_marked && !is_required;
    if (!format_.think_open.empty() && (is_marked || is_required) && format_.style != CallStyle::harmony && one_in(2))
      answer.thought = "Now " + words();
    const std::string before = has_text && one_in(2) ? words() + (one_in(2) ? "\n" : "\n\n") : "";
    const std::string after = has_text && one_in(3) ? "\n" + words() : "";
    answer.said = before + after;
    if (!answer.thought.empty()) answer.text = format_.think_open + answer.thought + format_.think_close + (one_in(2) ? "\n\n" : "\n");
    answer.text += before + written(answer.calls) + after;
    ++counts_.num_answers;
    counts_.num_calls += num_calls;
    return answer;
  }
  // Writes calls of two_tools().
  Answer plain_answer(std::size_t num_calls, bool is_required) {
    Answer answer{.tools = two_tools(), .calls = {}, .text = {}, .said = {}, .thought = {}};
    for (std::size_t i = 0; i < std::min(num_calls, max_calls()); ++i)
      answer.calls.push_back(i % 3 == 2 ? WrittenCall{"clock", {}} : WrittenCall{"get_weather", {{"city", "Bern"}, {"days", i}}});
    const bool has_text = !format_.open.empty() && format_.style != CallStyle::llama && !is_required;
    answer.text = (has_text ? "I look.\n" : "") + written(answer.calls) + (has_text ? "\nDone." : "");
    return answer;
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  [[nodiscard]] std::size_t max_calls() const { return 4; }
  [[nodiscard]] bool is_tagged() const { return format_.style == CallStyle::xml || format_.style == CallStyle::glm; }

  std::string words() {
    static const std::vector<std::string> all{"Let", "me",          "look.",    "caf\u00e9",    "1 < 2",   "{x}",
                                              "[1]", "<b>bold</b>", "`code`",   "\u65e5\u672c", "because", "|",
                                              "a/b", "\"so\"",      "(and so)", "50 %",         "\n",      "it's"};
    std::string text = all[below(2)];
    for (std::size_t i = below(6); i > 0; --i) text += " " + all[below(all.size())];
    if (!format_.open.empty() && format_.style != CallStyle::llama && one_in(3)) text += " with `" + format_.open + "` before";
    return text;
  }

  // Values ------------------------------------------------------------------------------------------------------------------------------

  std::string text() {
    static const std::vector<std::string> all{"a",
                                              "B ",
                                              " ",
                                              "caf\u00e9",
                                              "\u4e16\u754c",
                                              "\"",
                                              "'",
                                              "\\",
                                              "\n",
                                              "{",
                                              "}",
                                              "[",
                                              "]",
                                              "<",
                                              ">",
                                              "\U0001F600",
                                              "\t",
                                              "True",
                                              "null",
                                              "12",
                                              ",",
                                              ":",
                                              "/",
                                              "```",
                                              "|",
                                              "=",
                                              "(",
                                              ")",
                                              "C:\\new",
                                              "https://a.example/b?c=d&e",
                                              "</tool_call>",
                                              "<tool_call>",
                                              "[ARGS]",
                                              "</think>",
                                              "<|note|>",
                                              "\r\n",
                                              "\u2028",
                                              "0x1F",
                                              "-1.5e3",
                                              "tool_call",
                                              "$5",
                                              "%s",
                                              "\\u00e9",
                                              "\\n"};
    std::string text;
    for (std::size_t i = below(6); i > 0; --i) text += all[below(all.size())];
    return text;
  }
  boost::json::value value(int depth) {
    switch (below(depth < 2 ? 8 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return one_in(2);
      case 2:
        return static_cast<std::int64_t>(below(2'000'000)) - 1'000'000;
      case 3:
        return (static_cast<double>(below(2'000'000)) - 1e6) / 1024.0;
      case 4:
      case 5:
        return boost::json::value(text());
      case 6: {
        boost::json::array items;
        for (std::size_t i = below(4); i > 0; --i) items.push_back(value(depth + 1));
        return items;
      }
      default: {
        boost::json::object fields;
        for (std::size_t i = below(4); i > 0; --i) fields["k" + std::to_string(below(9))] = value(depth + 1);
        return fields;
      }
    }
  }
  static boost::json::value schema_of(const boost::json::value& value) {
    if (value.is_null()) return {{"type", "null"}};
    if (value.is_bool()) return {{"type", "boolean"}};
    if (value.is_int64() || value.is_uint64()) return {{"type", "integer"}};
    if (value.is_number()) return {{"type", "number"}};
    if (value.is_string()) return {{"type", "string"}};
    return {{"type", value.is_array() ? "array" : "object"}};
  }
  // Each call has a separate tool, whose schema has its arguments in their order.
  WrittenCall call(std::vector<Tool>& tools) {
    static constexpr const char* kNames[] = {"get_weather", "clock", "web.search-2", "get", "f", "read_file_", "Tool9"};
    WrittenCall call;
    call.name = kNames[below(std::size(kNames))] + std::to_string(tools.size());
    boost::json::object properties;
    boost::json::array required;
    for (std::size_t i = 0, size = below(5); i < size; ++i) {
      const std::string key = (one_in(2) ? "key_" : "k") + std::to_string(i);
      boost::json::value one = value(0);
      properties[key] = one_in(6) && one.is_string() ? boost::json::value{{"type", {"string", "null"}}} : schema_of(one);
      if (required.size() == i && !one_in(3)) required.emplace_back(key);
      call.arguments[key] = std::move(one);
      ++counts_.num_values;
    }
    tools.push_back(
        {.name = call.name, .parameters = {{"type", "object"}, {"properties", properties}, {"required", required}}, .strict = one_in(4)});
    return call;
  }

  // Spellings ---------------------------------------------------------------------------------------------------------------------------

  static std::pair<std::uint32_t, std::size_t> character(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    std::uint32_t code = size == 1 ? first : first & (0xFFU >> (size + 1));
    for (std::size_t i = 1; i < size; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
    return {code, size};
  }
  std::string json_of(const boost::json::value& value) {
    std::string out = JsonWriter(JsonStyle::random(random_), random_).write(value);
    counts_.spellings.insert(out);
    return out;
  }
  // Returns the literal that Python's repr() or a JSON writer produces.
  std::string python_of(const boost::json::value& value) {
    const bool is_python = one_in(2);
    if (value.is_null()) return "None";
    if (value.is_bool()) return value.get_bool() ? "True" : "False";
    if (!value.is_string() || !is_python) return json_of(value);
    const std::string_view text = value.get_string();
    const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
    const bool is_ascii = one_in(2);
    std::string out(1, quote);
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, size] = character(text.substr(at));
      at += size;
      if (code == '\n' || code == '\r' || code == '\t')
        out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
      else if (code == static_cast<unsigned char>(quote) || code == '\\')
        (out += '\\') += static_cast<char>(code);
      else if (code < 0x20 || code == 0x7F || (code > 0x7F && code < 0x100 && is_ascii))
        out += fmt::format("\\x{:02x}", code);
      else if (code >= 0x100 && is_ascii)
        out += code > 0xFFFF ? fmt::format("\\U{:08x}", code) : fmt::format("\\u{:04x}", code);
      else
        out += text.substr(at - size, size);
    }
    out += quote;
    counts_.spellings.insert(out);
    return out;
  }
  // Returns the value as it stands between tags: strings are written unchanged.
  std::string tagged_of(const boost::json::value& value) {
    if (value.is_string()) {
      counts_.spellings.emplace(value.get_string());
      return std::string(value.get_string());
    }
    const bool is_python = (value.is_null() || value.is_bool()) && one_in(2);
    return is_python ? python_of(value) : json_of(value);
  }

  // Formats -----------------------------------------------------------------------------------------------------------------------------

  std::string object_call(const WrittenCall& call) {
    const char* key = format_.style == CallStyle::llama ? "parameters" : "arguments";
    return fmt::format(R"({{"name": "{}", "{}": {}}})", call.name, key, json_of(call.arguments));
  }
  std::string pythonic_call(const WrittenCall& call) {
    std::string text = call.name + "(";
    for (const auto& [key, value] : call.arguments)
      text += fmt::format("{}{}={}", text.back() == '(' ? "" : ", ", std::string_view(key), python_of(value));
    return text + ")";
  }
  std::string tagged_call(const WrittenCall& call) {
    const char* feed = format_.is_tight ? "" : "\n";
    std::string text = format_.open;
    if (format_.style == CallStyle::glm) {
      text += call.name + feed;
      for (const auto& [key, value] : call.arguments)
        text += fmt::format("<arg_key>{}</arg_key>{}<arg_value>{}</arg_value>{}", std::string_view(key), feed, tagged_of(value), feed);
    } else {
      text += fmt::format("\n<function={}>\n", call.name);
      for (const auto& [key, value] : call.arguments)
        text += fmt::format("<parameter={}>{}{}{}</parameter>\n", std::string_view(key), feed, tagged_of(value), feed);
      text += "</function>\n";
    }
    return text + format_.close;
  }
  std::string section_call(const WrittenCall& call, std::size_t number) {
    const SectionDelimiters marks = section_delimiters(format_.style);
    std::string text(marks.call);
    if (format_.style == CallStyle::deepseek)
      text += fmt::format("function{}{}\n```json\n{}\n```", marks.separator, call.name, json_of(call.arguments));
    else if (format_.style == CallStyle::kimi)
      text += fmt::format("functions.{}:{}{}{}", call.name, number, marks.separator, json_of(call.arguments));
    else
      text += call.name + std::string(marks.separator) + json_of(call.arguments);
    return text.append(marks.call_end);
  }
  std::string one_call(const WrittenCall& call, std::size_t number) {
    using namespace harmony;
    switch (format_.style) {
      case CallStyle::harmony:
        return fmt::format("{}commentary to=functions.{} {}json{}{}", kChannel, call.name, kConstrain, kMessage, json_of(call.arguments));
      case CallStyle::mistral_v11:
        return fmt::format("[TOOL_CALLS]{}[ARGS]{}", call.name, json_of(call.arguments));
      case CallStyle::pythonic:
        return pythonic_call(call);
      case CallStyle::xml:
      case CallStyle::glm:
        return tagged_call(call);
      case CallStyle::deepseek:
      case CallStyle::deepseek_v31:
      case CallStyle::kimi:
        return section_call(call, number);
      case CallStyle::marked:
        if (!format_.is_list) return format_.open + "\n" + object_call(call) + "\n" + format_.close;
        [[fallthrough]];
      default:
        return object_call(call);
    }
  }
  std::string written(const std::vector<WrittenCall>& calls) {
    const bool is_list = format_.style == CallStyle::pythonic || format_.style == CallStyle::mistral || format_.is_list ||
                         (format_.style == CallStyle::plain && calls.size() > 1);
    std::string separator = is_list ? ", " : "\n";
    if (format_.style == CallStyle::llama) separator = "; ";
    if (format_.style == CallStyle::mistral_v11 || format_.style == CallStyle::deepseek_v31 || format_.style == CallStyle::kimi)
      separator = "";
    if (format_.style == CallStyle::glm && format_.is_tight) separator = "";
    if (format_.style == CallStyle::harmony) separator = fmt::format("{}{}assistant", harmony::kCall, harmony::kStart);
    std::string text;
    for (std::size_t i = 0; i < calls.size(); ++i) text += (i == 0 ? "" : separator) + one_call(calls[i], i);
    if (is_list) text = "[" + text + "]";
    if (const SectionDelimiters marks = section_delimiters(format_.style); !marks.begin.empty())
      return std::string(marks.begin) + text + std::string(marks.end);
    return is_list ? format_.open + text + format_.close : text;
  }

  const CallFormat& format_;
  std::mt19937_64& random_;
  Counts& counts_;
};

}  // namespace quire::test
