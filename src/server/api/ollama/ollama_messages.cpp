#include "server/api/ollama/ollama_messages.h"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <string>
#include <utility>

#include "server/request/chat_images.h"

namespace quire {

namespace json = boost::json;

namespace {

// Returns a call as in a chat: {"function": {"name": ..., "arguments": {...}}}, and the id if the client sent one.
json::value chat_call(ObjectReader& message, json::value& call) {
  json::object* fields = call.if_object();
  json::value* function = fields != nullptr ? fields->if_contains("function") : nullptr;
  const json::value* name = function != nullptr && function->is_object() ? function->get_object().if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string()) {
    message.reject("tool_calls", "must contain objects with a function that has a name",
                   R"(send [{"function": {"name": "f", "arguments": {}}}])");
    return nullptr;
  }
  json::object out{{"type", "function"}, {"function", json::object{{"name", *name}}}};
  if (json::value* arguments = function->get_object().if_contains("arguments"))
    out["function"].get_object().emplace("arguments", std::move(*arguments));
  if (const json::value* id = fields->if_contains("id"); id != nullptr && id->is_string() && !id->get_string().empty())
    out.emplace("id", *id);
  return out;
}

void read_calls(ObjectReader& message, json::object& out) {
  json::value* calls = message.find("tool_calls");
  if (calls == nullptr) return;
  if (!calls->is_array()) return message.reject("tool_calls", "must be an array, not " + describe(*calls));
  json::array read;
  for (json::value& call : calls->get_array()) read.push_back(chat_call(message, call));
  if (!read.empty()) out.emplace("tool_calls", std::move(read));
}

json::object chat_message(ObjectReader& message, std::size_t index, bool supports_images) {
  json::object out;
  const std::string role = message.text("role");
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    message.reject("role", role.empty() ? "is missing" : fmt::format("is '{}'", role.substr(0, 60)), "use system, user, assistant or tool");
  out.emplace("role", role);
  const json::value* images = message.find("images");
  out.emplace("content", content_with_images(message, images, fmt::format("messages[{}].images", index),
                                             json::string(message.text("content")), supports_images));
  if (std::string thoughts = message.text("thinking"); !thoughts.empty()) out.emplace("reasoning_content", std::move(thoughts));
  read_calls(message, out);
  // "name" is the older name of tool_name.
  std::string tool = message.text("tool_name");
  if (std::string older = message.text("name"); tool.empty()) tool = std::move(older);
  if (!tool.empty()) out.emplace("name", std::move(tool));
  if (std::string id = message.text("tool_call_id"); !id.empty()) out.emplace("tool_call_id", std::move(id));
  return out;
}

}  // namespace

json::value content_with_images(ObjectReader& reader, const json::value* images, std::string_view path, json::string text,
                                bool supports_images) {
  if (images == nullptr) return text;
  const std::string_view field = "images";
  if (!images->is_array()) {
    reader.reject(field, "must be an array of images in base64, not " + describe(*images));
    return text;
  }
  if (images->get_array().empty()) return text;
  if (!supports_images) {
    reader.reject(field, "are not supported: this model supports text only", "send text, or serve a model that supports images",
                  ErrorCode::unsupported);
    return text;
  }
  json::array parts;
  for (std::size_t i = 0; i < images->get_array().size(); ++i) {
    const json::value& image = images->get_array()[i];
    if (!image.is_string()) {
      reader.reject(fmt::format("{}[{}]", field, i), "must be an image in base64, not " + describe(image));
      return text;
    }
    json::string url = "data:image/*;base64,";
    parts.push_back(image_part(std::move(url.append(image.get_string())), fmt::format("{}[{}]", path, i)));
  }
  if (!text.empty()) parts.push_back(json::object{{"type", "text"}, {"text", std::move(text)}});
  return parts;
}

json::array read_ollama_messages(ObjectReader& reader, bool supports_images, std::vector<std::string>& ignored) {
  json::array out;
  json::value* messages = reader.find("messages");
  if (messages == nullptr) return out;
  if (!messages->is_array()) {
    reader.reject("messages", "must be an array, not " + describe(*messages), R"(send [{"role": "user", "content": "..."}])");
    return out;
  }
  json::array& sent = messages->get_array();
  for (std::size_t i = 0; i < sent.size() && !reader.failed(); ++i) {
    if (!sent[i].is_object()) {
      reader.reject(fmt::format("messages[{}]", i), "must be an object, not " + describe(sent[i]));
      break;
    }
    ObjectReader message(sent[i].get_object(), fmt::format("messages[{}].", i));
    out.push_back(chat_message(message, i, supports_images));
    if (const auto done = message.finish(ignored); !done) reader.reject(done.error());
  }
  return out;
}

}  // namespace quire
