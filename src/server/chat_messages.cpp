#include "server/chat_messages.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>

namespace quire {

namespace json = boost::json;

namespace {

std::string at(std::size_t index, std::string_view rest) {
  return fmt::format("messages[{}]{}", index, rest);
}

Error wrong(std::string field, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument) {
  return Error{code, std::move(field), std::move(message), std::move(remedy)};
}

// Text parts become one text, joined by line feeds as vLLM does.
Result<json::value> read_content(const json::value& content, std::size_t index) {
  if (content.is_null() || content.is_string()) return content;
  if (!content.is_array())
    return std::unexpected(wrong(at(index, ".content"), "must be a string or an array of parts, not " + describe(content)));
  std::string joined;
  for (std::size_t i = 0; i < content.get_array().size(); ++i) {
    const json::value& part = content.get_array()[i];
    const std::string field = at(index, fmt::format(".content[{}]", i));
    const json::value* type = part.is_object() ? part.get_object().if_contains("type") : nullptr;
    if (type == nullptr || !type->is_string())
      return std::unexpected(wrong(field, "must be an object with a type", R"(send {"type": "text", "text": ...})"));
    if (type->get_string() != "text") {
      return std::unexpected(
          wrong(field, fmt::format("has type {}", describe(*type)), "this model reads text parts only", ErrorCode::unsupported));
    }
    const json::value* text = part.get_object().if_contains("text");
    if (text == nullptr || !text->is_string()) return std::unexpected(wrong(field + ".text", "must be a string"));
    if (i > 0) joined += '\n';
    joined += text->get_string();
  }
  return json::value(joined);
}

// Templates iterate over the arguments of a call; clients send them as JSON text.
Result<void> parse_tool_arguments(json::value& calls, std::size_t index) {
  if (!calls.is_array()) return std::unexpected(wrong(at(index, ".tool_calls"), "must be an array"));
  for (json::value& call : calls.get_array()) {
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object())
      return std::unexpected(wrong(at(index, ".tool_calls"), "must hold objects with a function"));
    json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    json::error_code code;
    const std::string text(arguments->get_string());
    json::value parsed = text.empty() ? json::value(json::object()) : json::parse(text, code);
    if (code) return std::unexpected(wrong(at(index, ".tool_calls"), "function.arguments is not JSON: " + code.message()));
    *arguments = std::move(parsed);
  }
  return {};
}

Result<json::object> read_message(const json::value& value, std::size_t index) {
  if (!value.is_object()) return std::unexpected(wrong(at(index, ""), "must be an object, not " + describe(value)));
  json::object message;
  for (const auto& [key, field] : value.get_object())
    if (!field.is_null() || key == "content") message[key] = field;
  const json::value* role = message.if_contains("role");
  if (role == nullptr || !role->is_string())
    return std::unexpected(wrong(at(index, ".role"), "must be a string", "use system, user, assistant or tool"));
  const json::value* content = message.if_contains("content");
  json::value* calls = message.if_contains("tool_calls");
  if (calls != nullptr && calls->is_array() && calls->get_array().empty()) {
    message.erase("tool_calls");
    calls = nullptr;
  }
  if ((content == nullptr || content->is_null()) && role->get_string() != "assistant")
    return std::unexpected(wrong(at(index, ".content"), "is missing", "send a string"));
  auto text = read_content(content == nullptr ? json::value(nullptr) : *content, index);
  if (!text) return std::unexpected(text.error());
  // Most templates paste the content in: a null must not become "None".
  message["content"] = text->is_null() ? json::value("") : std::move(*text);
  if (json::value* present = message.if_contains("tool_calls")) {
    if (const auto parsed = parse_tool_arguments(*present, index); !parsed) return std::unexpected(parsed.error());
  }
  return message;
}

void read_tools(ObjectReader& reader, ChatPrompt& chat) {
  const json::value* tools = reader.find("tools");
  const json::value* choice = reader.find("tool_choice");
  if (tools != nullptr && !tools->is_array()) reader.reject("tools", "must be an array, not " + describe(*tools));
  if (choice != nullptr && *choice != "auto" && *choice != "none") {
    reader.reject("tool_choice", "is " + describe(*choice), "only auto and none are offered: output is not constrained to a tool",
                  ErrorCode::unsupported);
  }
  if (tools == nullptr || !tools->is_array() || tools->get_array().empty()) return;
  if (choice == nullptr || *choice != "none") chat.tools = *tools;
}

}  // namespace

ChatPrompt read_chat_prompt(ObjectReader& reader) {
  ChatPrompt chat;
  const json::value* messages = reader.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) {
    reader.reject("messages", messages == nullptr ? "is missing" : "must be an array with at least one message",
                  R"(send [{"role": "user", "content": "..."}])");
  } else {
    for (std::size_t i = 0; i < messages->get_array().size() && !reader.failed(); ++i) {
      auto message = read_message(messages->get_array()[i], i);
      if (message)
        chat.messages.emplace_back(std::move(*message));
      else
        reader.reject(message.error());
    }
  }
  read_tools(reader, chat);
  chat.add_generation_prompt = reader.boolean("add_generation_prompt", true);
  if (const json::value* kwargs = reader.find("chat_template_kwargs")) {
    if (kwargs->is_object())
      chat.template_kwargs = kwargs->get_object();
    else
      reader.reject("chat_template_kwargs", "must be an object, not " + describe(*kwargs));
  }
  return chat;
}

}  // namespace quire
