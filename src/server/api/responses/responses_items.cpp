// Converts items of /v1/responses (messages, reasoning, calls, their outputs, references to earlier items) to the messages that a chat
// template reads. Runs where the body is read, on the server's thread or in the job pool. Consecutive items of the model become one
// message, because the model generated them in one turn and the template must render the same turns.
#include "server/api/responses/responses_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <string>
#include <utility>

#include "server/request/chat_images.h"
#include "server/request/object_reader.h"

namespace quire {

namespace json = boost::json;

namespace {

Error wrong_item(std::string field, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument) {
  return Error{code, std::move(field), std::move(message), std::move(remedy)};
}

std::string_view text_of(const json::object& item, std::string_view name) {
  const json::value* value = item.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

bool is_text_part(std::string_view type) {
  return type == "input_text" || type == "output_text" || type == "text" || type == "refusal" || type == "summary_text" ||
         type == "reasoning_text";
}

// Returns a string unchanged, or joins the text parts with line feeds like the parts of a chat message.
Result<json::string> text_of_parts(const json::value& content, const std::string& field) {
  if (content.is_string()) return content.get_string();
  if (!content.is_array()) return std::unexpected(wrong_item(field, "must be a string or an array of parts, not " + describe(content)));
  json::string out;
  for (std::size_t i = 0; i < content.get_array().size(); ++i) {
    const json::value& part = content.get_array()[i];
    const std::string at = fmt::format("{}[{}]", field, i);
    const std::string_view type = part.is_object() ? text_of(part.get_object(), "type") : std::string_view();
    if (type.empty())
      return std::unexpected(wrong_item(at, "must be an object with a type", R"(send {"type": "input_text", "text": "..."})"));
    if (!is_text_part(type))
      return std::unexpected(wrong_item(at + ".type", "is " + describe(json::value(type)), "send text: this model supports text only",
                                        ErrorCode::unsupported));
    const char* const name = type == "refusal" ? "refusal" : "text";
    const json::value* text = part.get_object().if_contains(name);
    if (text == nullptr || !text->is_string()) return std::unexpected(wrong_item(fmt::format("{}.{}", at, name), "must be a string"));
    if (i > 0) out += '\n';
    out += text->get_string();
  }
  return out;
}

// Returns the result of text_of_parts() or, if there are images, the equivalent parts of a chat message.
Result<json::value> content_of_message(const json::value& content, const std::string& field) {
  const auto is_picture = [](const json::value& part) { return part.is_object() && text_of(part.get_object(), "type") == "input_image"; };
  if (!content.is_array() || std::ranges::none_of(content.get_array(), is_picture)) {
    auto text = text_of_parts(content, field);
    if (!text) return std::unexpected(std::move(text.error()));
    return json::value(*std::move(text));
  }
  json::array parts;
  for (std::size_t i = 0; i < content.get_array().size(); ++i) {
    const json::value& part = content.get_array()[i];
    const std::string at = fmt::format("{}[{}]", field, i);
    if (is_picture(part)) {
      parts.push_back(image_part(json::string(text_of(part.get_object(), "image_url")), at));
      continue;
    }
    auto text = text_of_parts(json::array{part}, field);
    if (!text) return std::unexpected(std::move(text.error()));
    parts.push_back(json::object{{"type", "text"}, {"text", *std::move(text)}});
  }
  return json::value(std::move(parts));
}

class ItemsReader {
 public:
  ItemsReader(const FindItem& find, json::array& messages) : find_(&find), messages_(&messages) {}

  Result<void> add(const json::object& item, const std::string& field);
  void finish() {
    if (!std::exchange(is_open_, false)) return;
    messages_->emplace_back(std::exchange(turn_, {}));
  }

 private:
  Result<void> add_message(const json::object& item, const std::string& field);
  Result<void> add_reasoning(const json::object& item, const std::string& field);
  Result<void> add_call(const json::object& item, const std::string& field);
  Result<void> add_output(const json::object& item, const std::string& field);
  Result<void> add_reference(const json::object& item, const std::string& field);
  // Returns the current turn of the model; begins one if none is open. With `begins`, first ends a turn that already has text or calls.
  json::object& turn(bool begins) {
    if (begins && (turn_.contains("tool_calls") || has_text_)) finish();
    if (!std::exchange(is_open_, true)) {
      turn_ = {{"role", "assistant"}, {"content", ""}};
      has_text_ = false;
    }
    return turn_;
  }

  const FindItem* find_;
  json::array* messages_;
  json::object turn_;
  bool is_open_ = false;
  bool has_text_ = false;
  bool follows_reference_ = false;
};

Result<void> ItemsReader::add(const json::object& item, const std::string& field) {
  std::string_view type = text_of(item, "type");
  if (type.empty() && item.contains("role")) type = "message";
  if (type == "message") return add_message(item, field);
  if (type == "reasoning") return add_reasoning(item, field);
  if (type == "function_call") return add_call(item, field);
  if (type == "function_call_output") return add_output(item, field);
  if (type == "item_reference" || (type.empty() && item.contains("id"))) return add_reference(item, field);
  if (type.empty()) return std::unexpected(wrong_item(field + ".type", "is missing", R"(send {"role": "user", "content": "..."})"));
  return std::unexpected(wrong_item(field + ".type", "is " + describe(json::value(type)),
                                    "send messages, function calls, function call outputs or reasoning", ErrorCode::unsupported));
}

Result<void> ItemsReader::add_message(const json::object& item, const std::string& field) {
  std::string_view role = text_of(item, "role");
  if (role != "user" && role != "assistant" && role != "system" && role != "developer")
    return std::unexpected(wrong_item(field + ".role", "must be user, assistant, system or developer"));
  const json::value* content = item.if_contains("content");
  if (content == nullptr) return std::unexpected(wrong_item(field + ".content", "is missing", "send a string"));
  if (role == "assistant") {
    auto text = text_of_parts(*content, field + ".content");
    if (!text) return std::unexpected(text.error());
    turn(true)["content"] = *std::move(text);
    has_text_ = true;
    return {};
  }
  auto said = content_of_message(*content, field + ".content");
  if (!said) return std::unexpected(said.error());
  finish();
  if (role == "developer") role = "system";  // chat templates use the older name
  messages_->emplace_back(json::object{{"role", role}, {"content", *std::move(said)}});
  return {};
}

// Adds the reasoning's content, or its summary if the content is missing.
Result<void> ItemsReader::add_reasoning(const json::object& item, const std::string& field) {
  for (const char* name : {"content", "summary"}) {
    const json::value* parts = item.if_contains(name);
    if (parts == nullptr || !parts->is_array() || parts->get_array().empty()) continue;
    auto text = text_of_parts(*parts, field + "." + name);
    if (!text) return std::unexpected(text.error());
    turn(true)["reasoning_content"] = *std::move(text);
    return {};
  }
  return {};
}

Result<void> ItemsReader::add_call(const json::object& item, const std::string& field) {
  const std::string_view id = text_of(item, "call_id"), name = text_of(item, "name"), arguments = text_of(item, "arguments");
  if (id.empty()) return std::unexpected(wrong_item(field + ".call_id", "must be a string"));
  if (name.empty()) return std::unexpected(wrong_item(field + ".name", "must be a string"));
  json::value& calls = turn(false)["tool_calls"];
  if (!calls.is_array()) calls = json::array();
  calls.get_array().emplace_back(
      json::object{{"id", id}, {"type", "function"}, {"function", json::object{{"name", name}, {"arguments", arguments}}}});
  return {};
}

Result<void> ItemsReader::add_output(const json::object& item, const std::string& field) {
  const std::string_view id = text_of(item, "call_id");
  if (id.empty()) return std::unexpected(wrong_item(field + ".call_id", "must be the id of a function call"));
  const json::value* output = item.if_contains("output");
  if (output == nullptr) return std::unexpected(wrong_item(field + ".output", "is missing", "send a string"));
  auto text = text_of_parts(*output, field + ".output");
  if (!text) return std::unexpected(text.error());
  finish();
  messages_->emplace_back(json::object{{"role", "tool"}, {"tool_call_id", id}, {"content", *std::move(text)}});
  return {};
}

Result<void> ItemsReader::add_reference(const json::object& item, const std::string& field) {
  const auto found = (*find_)(text_of(item, "id"));
  if (!found) return std::unexpected(wrong_item(field + ".id", found.error().message, found.error().remedy, found.error().code));
  if (std::exchange(follows_reference_, true)) return std::unexpected(wrong_item(field + ".id", "refers to another reference"));
  auto added = add(*found, field);
  follows_reference_ = false;
  return added;
}

}  // namespace

Result<void> append_items(const json::array& items, const FindItem& find, json::array& messages) {
  ItemsReader reader(find, messages);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string field = fmt::format("input[{}]", i);
    if (!items[i].is_object()) return std::unexpected(wrong_item(field, "must be an object, not " + describe(items[i])));
    if (const auto added = reader.add(items[i].get_object(), field); !added) return added;
  }
  reader.finish();
  return {};
}

}  // namespace quire
