#include "text/tool_calls/message_text.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::string_view kBetween = "\n\n";

const json::array* parts_of(const json::value& message) {
  const json::value* content = message.is_object() ? message.get_object().if_contains("content") : nullptr;
  return content != nullptr && content->is_array() ? &content->get_array() : nullptr;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

json::object text_part(std::string text) {
  return {{"type", "text"}, {"text", std::move(text)}};
}

}  // namespace

std::string text_of(const json::object& message) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->get_string());
  std::string joined;
  if (!content->is_array()) return joined;
  for (const json::value& part : content->get_array()) {
    const json::value* text = part.is_object() ? part.get_object().if_contains("text") : nullptr;
    if (text == nullptr || !text->is_string()) continue;
    if (!joined.empty()) joined += '\n';
    joined += text->get_string();
  }
  return joined;
}

void put_before(json::object& message, std::string_view text) {
  json::value& content = message["content"];
  if (content.is_array()) {
    json::array& parts = content.get_array();
    parts.insert(parts.begin(), text_part(std::string(text).append(parts.empty() ? "" : kBetween)));
    return;
  }
  std::string joined(text);
  if (content.is_string() && !content.get_string().empty()) joined.append(kBetween).append(content.get_string());
  content = joined;
}

void put_after(json::object& message, std::string_view text) {
  json::value& content = message["content"];
  if (content.is_array()) {
    json::array& parts = content.get_array();
    parts.push_back(text_part(std::string(parts.empty() ? "" : kBetween).append(text)));
    return;
  }
  // Appends in place, because many texts may be appended to one message.
  if (!content.is_string()) content = "";
  json::string& said = content.get_string();
  if (!said.empty()) said += kBetween;
  said += text;
}

bool has_text_parts(const json::array& messages) {
  return std::ranges::any_of(messages, [](const json::value& message) { return parts_of(message) != nullptr; });
}

bool shows_text_parts(const json::array& messages, std::string_view rendered) {
  for (const std::string_view printed : {"'type': 'text'", R"("type": "text")", R"("type":"text")"})
    if (rendered.find(printed) != std::string_view::npos) return false;
  for (const json::value& message : messages) {
    const json::array* const parts = parts_of(message);
    if (parts == nullptr) continue;
    for (const json::value& part : *parts)
      if (const json::value* text = part.is_object() ? part.get_object().if_contains("text") : nullptr;
          text != nullptr && text->is_string())
        if (rendered.find(trim(text->get_string())) == std::string_view::npos) return false;
  }
  return true;
}

void join_text_parts(json::array& messages) {
  for (json::value& message : messages)
    if (parts_of(message) != nullptr) {
      const std::string joined = text_of(message.get_object());
      message.get_object()["content"] = joined;
    }
}

}  // namespace quire
