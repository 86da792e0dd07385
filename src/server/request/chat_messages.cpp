// The conversation of a chat request, changed in place to what chat templates of models expect: text parts joined, arguments of calls as
// objects, nulls gone. Where the body is read, on the server's thread or one of the job pool. A body is most of a request's cost, so its
// parts are moved where that is possible, and nothing here may take time quadratic in it.
#include "server/request/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/request/chat_pictures.h"

namespace quire {

namespace json = boost::json;

namespace {

std::string at(std::size_t index, std::string_view rest) {
  return fmt::format("messages[{}]{}", index, rest);
}

Error wrong(std::string field, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument) {
  return Error{code, std::move(field), std::move(message), std::move(remedy)};
}

// What the messages of a chat bring besides their words.
struct PartsRead {
  PictureReading reading;
  std::vector<ChatPicture> pictures;
  MediaFetcher::Budget fetched{};
};

// A part that has a picture, which goes to the others.
Result<void> read_picture(json::value& part, std::string field, PartsRead& read) {
  auto picture = take_picture(part, std::move(field), read.reading, read.fetched, read.pictures.size() == read.reading.most);
  if (!picture) return std::unexpected(std::move(picture.error()));
  read.pictures.push_back(*std::move(picture));
  return {};
}

// Text parts become one text, joined by line feeds as vLLM does; the places of pictures go before it. Or, for a template that wants them,
// parts stay parts.
Result<void> join_parts(json::value& content, std::size_t index, PartsRead& read) {
  if (content.is_null() || content.is_string()) return {};
  if (!content.is_array())
    return std::unexpected(wrong(at(index, ".content"), "must be a string or an array of parts, not " + describe(content)));
  json::string joined, places;
  json::array parts;
  std::size_t num_texts = 0;
  for (std::size_t i = 0; i < content.get_array().size(); ++i) {
    json::value& part = content.get_array()[i];
    const std::string field = at(index, fmt::format(".content[{}]", i));
    const json::value* type = part.is_object() ? part.get_object().if_contains("type") : nullptr;
    if (type == nullptr || !type->is_string())
      return std::unexpected(wrong(field, "must be an object with a type", R"(send {"type": "text", "text": ...})"));
    if (is_picture_part(type->get_string())) {
      if (const auto taken = read_picture(part, field, read); !taken) return taken;
      places.append(read.reading.mark).append("\n");
      parts.push_back(std::move(part));
      continue;
    }
    if (type->get_string() != "text") {
      return std::unexpected(
          wrong(field, fmt::format("has type {}", describe(*type)), "this model reads text parts only", ErrorCode::unsupported));
    }
    const json::value* text = part.get_object().if_contains("text");
    if (text == nullptr || !text->is_string()) return std::unexpected(wrong(field + ".text", "must be a string"));
    if (num_texts++ > 0) joined += '\n';
    joined += text->get_string();
    if (read.reading.parts) parts.push_back(json::object{{"type", "text"}, {"text", *text}});
  }
  if (read.reading.parts) {
    content = std::move(parts);
    return {};
  }
  places.append(joined);
  content = std::move(places);
  return {};
}

// Templates iterate over the arguments of a call; clients send them as JSON text.
Result<void> parse_tool_arguments(json::value& calls, std::size_t index) {
  if (!calls.is_array()) return std::unexpected(wrong(at(index, ".tool_calls"), "must be an array"));
  for (json::value& call : calls.get_array()) {
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object())
      return std::unexpected(wrong(at(index, ".tool_calls"), "must hold objects with a function"));
    json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr) continue;
    if (arguments->is_string()) {
      json::error_code code;
      const std::string text(arguments->get_string());
      json::value parsed = text.empty() ? json::value(json::object()) : json::parse(text, code);
      if (code) return std::unexpected(wrong(at(index, ".tool_calls"), "function.arguments is not JSON: " + code.message()));
      *arguments = std::move(parsed);
    }
    if (arguments->is_null()) *arguments = json::object();
    if (!arguments->is_object()) {
      return std::unexpected(
          wrong(at(index, ".tool_calls"), "function.arguments is no object but " + describe(*arguments), "send the text of a JSON object"));
    }
  }
  return {};
}

// null counts as absent, but for the content. Erasing one by one would be quadratic.
void drop_nulls(json::object& message) {
  const auto is_kept = [](const json::key_value_pair& field) { return !field.value().is_null() || field.key() == "content"; };
  if (std::ranges::all_of(message, is_kept)) return;
  json::object kept;
  for (json::key_value_pair& field : message)
    if (is_kept(field)) kept.emplace(field.key(), std::move(field.value()));
  message = std::move(kept);
}

// In place: a conversation is most of a body.
Result<void> read_message(json::value& value, std::size_t index, PartsRead& read) {
  if (!value.is_object()) return std::unexpected(wrong(at(index, ""), "must be an object, not " + describe(value)));
  json::object& message = value.get_object();
  drop_nulls(message);
  const json::value* role = message.if_contains("role");
  if (role == nullptr || !role->is_string())
    return std::unexpected(wrong(at(index, ".role"), "must be a string", "use system, user, assistant or tool"));
  const bool needs_content = role->get_string() != "assistant";
  const json::value* no_calls = message.if_contains("tool_calls");
  if (no_calls != nullptr && no_calls->is_array() && no_calls->get_array().empty()) message.stable_erase("tool_calls");
  // vLLM's newer name; templates read the older.
  if (json::value* thoughts = message.if_contains("reasoning"); thoughts != nullptr && !message.contains("reasoning_content")) {
    json::value moved = std::move(*thoughts);
    message.emplace("reasoning_content", std::move(moved));
  }
  json::value& content = message["content"];
  if (content.is_null() && needs_content) return std::unexpected(wrong(at(index, ".content"), "is missing", "send a string"));
  if (const auto joined = join_parts(content, index, read); !joined) return joined;
  // Most templates paste the content in: a null must not become "None".
  if (content.is_null()) content = "";
  json::value* calls = message.if_contains("tool_calls");
  return calls == nullptr ? Result<void>() : parse_tool_arguments(*calls, index);
}

// Of earlier answers, by the ids of their calls; ids are optional.
class EarlierCalls {
 public:
  void add(const json::array& calls) {
    num_calls_ += calls.size();
    for (const json::value& call : calls)
      if (const json::value* id = call.get_object().if_contains("id"); id != nullptr && id->is_string()) ids_.emplace(id->get_string());
  }
  // Whether a tool may have answered with this id, null if it says none.
  [[nodiscard]] bool has(const json::value* id) const {
    if (id == nullptr || !id->is_string() || ids_.empty()) return num_calls_ > 0;
    return ids_.contains(std::string(id->get_string()));
  }

 private:
  std::size_t num_calls_ = 0;
  std::set<std::string> ids_;
};

Result<void> check_calls(const json::object& message, std::size_t index, EarlierCalls& earlier) {
  const json::value* calls = message.if_contains("tool_calls");
  if (calls != nullptr) earlier.add(calls->get_array());
  if (message.at("role") != "tool") return {};
  const json::value* id = message.if_contains("tool_call_id");
  if (earlier.has(id)) return {};
  return std::unexpected(
      wrong(at(index, id != nullptr ? ".tool_call_id" : ".role"),
            id != nullptr ? fmt::format("{} is the id of no call before it", describe(*id)) : "is a result without a call",
            "send the assistant message with its tool_calls before the results"));
}

// For templates that read it; "none" turns thinking off where the template has a switch.
void read_effort(ObjectReader& reader, ChatPrompt& chat) {
  const std::string effort = reader.text("reasoning_effort");
  if (effort.empty()) return;
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts))
    return reader.reject("reasoning_effort", "is \"" + effort.substr(0, 60) + "\"",
                         fmt::format("use one of {}", fmt::join(kEfforts, ", ")));
  chat.template_kwargs.emplace("reasoning_effort", effort);
  if (effort == "none") chat.template_kwargs.emplace("enable_thinking", false);
}

}  // namespace

ChatPrompt read_chat_prompt(ObjectReader& reader, const PictureReading& pictures) {
  ChatPrompt chat;
  PartsRead read{.reading = pictures, .pictures = {}};
  json::value* messages = reader.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) {
    reader.reject("messages", messages == nullptr ? "is missing" : "must be an array with at least one message",
                  R"(send [{"role": "user", "content": "..."}])");
  } else {
    chat.messages = std::move(messages->get_array());
    EarlierCalls earlier;
    for (std::size_t i = 0; i < chat.messages.size() && !reader.failed(); ++i)
      if (const auto message = read_message(chat.messages[i], i, read); !message)
        reader.reject(message.error());
      else if (const auto known = check_calls(chat.messages[i].get_object(), i, earlier); !known)
        reader.reject(known.error());
  }
  chat.pictures = std::move(read.pictures);
  chat.add_generation_prompt = reader.boolean("add_generation_prompt", true);
  chat.continue_final_message = reader.boolean("continue_final_message", false);
  if (chat.continue_final_message && chat.add_generation_prompt)
    reader.reject("continue_final_message", "is set, and add_generation_prompt is, too", "send \"add_generation_prompt\": false as well");
  if (json::value* kwargs = reader.find("chat_template_kwargs")) {
    if (kwargs->is_object())
      chat.template_kwargs = std::move(kwargs->get_object());
    else
      reader.reject("chat_template_kwargs", "must be an object, not " + describe(*kwargs));
  }
  read_effort(reader, chat);
  return chat;
}

}  // namespace quire
