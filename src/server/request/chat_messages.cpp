// Converts the conversation of a chat request in place to the format that chat templates expect: joins text parts, parses call arguments
// into objects, and removes nulls. Runs where the body is read, on the server's thread or in the job pool. The conversation is most of a
// body, so its parts are moved where possible, and no function may take quadratic time.
#include "server/request/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/request/chat_images.h"
#include "text/tool_calls/json_object.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxArgumentDepth = 64;  // maximum depth of call arguments that the server parses

std::string at(std::size_t index, std::string_view rest) {
  return fmt::format("messages[{}]{}", index, rest);
}

Error wrong(std::string field, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument) {
  return Error{code, std::move(field), std::move(message), std::move(remedy)};
}

// The images read so far, and the settings for reading them.
struct PartsRead {
  ImageReading reading;
  std::vector<ChatImage> pictures;
  MediaFetcher::Budget fetched{};
};

// Reads the image of a part and appends it to `read`.
Result<void> read_image(json::value& part, std::string field, PartsRead& read) {
  auto picture = read_image_part(part, std::move(field), read.reading, read.fetched, read.pictures.size() == read.reading.most);
  if (!picture) return std::unexpected(std::move(picture.error()));
  read.pictures.push_back(*std::move(picture));
  return {};
}

// Joins text parts into one text, with line feeds as in vLLM. The placeholders of images precede the text. If the template iterates over
// the parts, keeps the parts separate.
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
    if (is_image_part(type->get_string())) {
      if (const auto taken = read_image(part, field, read); !taken) return taken;
      places.append(read.reading.placeholder).append("\n");
      parts.push_back(std::move(part));
      continue;
    }
    // The text of a refusal by the assistant counts as its content.
    const char* const kind = type->get_string() == "refusal" ? "refusal" : "text";
    if (type->get_string() != kind) {
      return std::unexpected(wrong(field, fmt::format("has type {}", describe(*type)), "send text parts: this model supports text only",
                                   ErrorCode::unsupported));
    }
    const json::value* text = part.get_object().if_contains(kind);
    if (text == nullptr || !text->is_string()) return std::unexpected(wrong(fmt::format("{}.{}", field, kind), "must be a string"));
    if (num_texts++ > 0) joined += '\n';
    joined += text->get_string();
    if (read.reading.parts) parts.push_back(json::object{{"type", "text"}, {"text", *text}});
  }
  if (read.reading.parts && (read.reading.supports_images || num_texts > 1)) {
    content = std::move(parts);
    return {};
  }
  places.append(joined);
  content = std::move(places);
  return {};
}

// Parses call arguments. An answer that was cut off within a call has an incomplete object, which clients send back in every later turn.
// Completes such an object. Other text that is not JSON becomes {"raw_arguments": text}.
json::value arguments_of(const std::string& text) {
  json::parse_options options;
  options.max_depth = kMaxArgumentDepth;
  json::error_code code;
  json::value parsed = json::parse(complete_object(text, UnterminatedString::closed).value_or(text), code, {}, options);
  return code ? json::object{{"raw_arguments", text}} : std::move(parsed);
}

// Parses the arguments of calls, because clients send JSON text and templates iterate over an object.
Result<void> parse_tool_arguments(json::value& calls, std::size_t index) {
  if (!calls.is_array()) return std::unexpected(wrong(at(index, ".tool_calls"), "must be an array"));
  for (json::value& call : calls.get_array()) {
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object())
      return std::unexpected(wrong(at(index, ".tool_calls"), "must contain objects with a function"));
    json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr) continue;
    if (arguments->is_string()) {
      const std::string text(arguments->get_string());
      *arguments = text.empty() ? json::object() : arguments_of(text);
    }
    if (arguments->is_null()) *arguments = json::object();
    if (!arguments->is_object()) {
      return std::unexpected(wrong(at(index, ".tool_calls"), "function.arguments must be an object, not " + describe(*arguments),
                                   "send the text of a JSON object"));
    }
  }
  return {};
}

// Removes fields that are null, except the content. Builds a new object, because erasing fields one by one would be quadratic.
void drop_nulls(json::object& message) {
  const auto is_kept = [](const json::key_value_pair& field) { return !field.value().is_null() || field.key() == "content"; };
  if (std::ranges::all_of(message, is_kept)) return;
  json::object kept;
  for (json::key_value_pair& field : message)
    if (is_kept(field)) kept.emplace(field.key(), std::move(field.value()));
  message = std::move(kept);
}

// Converts one message in place, because the conversation is most of the body.
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
  // "reasoning" is vLLM's newer name. Templates read reasoning_content.
  if (json::value* thoughts = message.if_contains("reasoning"); thoughts != nullptr && !message.contains("reasoning_content")) {
    json::value moved = std::move(*thoughts);
    message.emplace("reasoning_content", std::move(moved));
  }
  json::value& content = message["content"];
  if (content.is_null() && needs_content) return std::unexpected(wrong(at(index, ".content"), "is missing", "send a string"));
  if (const auto joined = join_parts(content, index, read); !joined) return joined;
  // Most templates insert the content as text, and null would become "None".
  if (content.is_null()) content = "";
  json::value* calls = message.if_contains("tool_calls");
  return calls == nullptr ? Result<void>() : parse_tool_arguments(*calls, index);
}

// The ids of the calls in earlier messages. Ids are optional.
class EarlierCalls {
 public:
  void add(const json::array& calls) {
    num_calls_ += calls.size();
    for (const json::value& call : calls)
      if (const json::value* id = call.get_object().if_contains("id"); id != nullptr && id->is_string()) ids_.emplace(id->get_string());
  }
  // Returns whether a tool result with this id may answer an earlier call. `id` is null if the result has no id.
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
            id != nullptr ? fmt::format("{} is not the id of an earlier tool call", describe(*id)) : "is a tool result without a tool call",
            "send the assistant message with its tool_calls before the results"));
}

// Passes reasoning_effort to the template. "none" also disables thinking if the template supports this.
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

// The number of messages without images between two cancellation points. Decoding the base64 of one image takes as long as thousands of
// messages.
constexpr std::size_t kMessagesPerCheckpoint = 1024;

}  // namespace

ChatPrompt read_chat_prompt(ObjectReader& reader, const ImageReading& image_reading, const CancellationPoint* cancellation) {
  ChatPrompt chat;
  PartsRead read{.reading = image_reading, .pictures = {}};
  json::value* messages = reader.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) {
    reader.reject("messages", messages == nullptr ? "is missing" : "must be an array with at least one message",
                  R"(send [{"role": "user", "content": "..."}])");
  } else {
    chat.messages = std::move(messages->get_array());
    EarlierCalls earlier;
    std::size_t num_images = 0;
    for (std::size_t i = 0; i < chat.messages.size() && !reader.failed(); ++i) {
      if (i % kMessagesPerCheckpoint == 0 || read.pictures.size() > num_images) pass(cancellation);
      num_images = read.pictures.size();
      if (const auto message = read_message(chat.messages[i], i, read); !message)
        reader.reject(message.error());
      else if (const auto known = check_calls(chat.messages[i].get_object(), i, earlier); !known)
        reader.reject(known.error());
    }
  }
  chat.pictures = std::move(read.pictures);
  chat.add_generation_prompt = reader.boolean("add_generation_prompt", true);
  chat.continue_final_message = reader.boolean("continue_final_message", false);
  if (chat.continue_final_message && chat.add_generation_prompt)
    reader.reject("continue_final_message", "cannot be combined with add_generation_prompt",
                  "send \"add_generation_prompt\": false as well");
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
