#include "server/request/thinking_fields.h"

#include <string>
#include <utility>

namespace quire {

namespace json = boost::json;

namespace {

// Reads the field `thinking` of DeepSeek and GLM: {"type": "enabled"} or {"type": "disabled"}. Ignores a budget, because max_tokens limits
// reasoning and text together.
std::optional<bool> read_thinking_object(ObjectReader& reader, CompletionRequest& request) {
  json::value* value = reader.find("thinking");
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  std::string type;
  if (value->is_object()) {
    if (value->get_object().empty()) return std::nullopt;
    ObjectReader inner(value->get_object(), "thinking.");
    type = inner.text("type");
    if (const auto done = inner.finish(request.ignored, true); !done) reader.reject(done.error());
  }
  if (type == "adaptive" || type == "auto") return std::nullopt;
  if (type != "enabled" && type != "disabled")
    reader.reject("thinking", "is " + describe(*value) + " without a known type", R"(send {"type": "enabled"} or {"type": "disabled"})");
  return type == "enabled";
}

// Reads OpenRouter's field `reasoning`.
std::optional<bool> read_reasoning_object(ObjectReader& reader, CompletionRequest& request) {
  json::value* value = reader.find("reasoning");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    reader.reject("reasoning", "must be an object, not " + describe(*value), R"(send {"effort": "low"})");
    return std::nullopt;
  }
  ObjectReader inner(value->get_object(), "reasoning.");
  (void)inner.find("effort");  // read as reasoning_effort
  if (inner.boolean("exclude", false)) request.includes_reasoning = false;
  inner.only("max_tokens", "null", "send max_tokens, which limits reasoning and answer together");
  for (const char* hint : {"summary", "generate_summary"}) inner.ignore(hint);
  const bool has_switch = inner.find("enabled") != nullptr;
  const bool is_on = inner.boolean("enabled", false);
  if (const auto done = inner.finish(request.ignored); !done) reader.reject(done.error());
  return has_switch ? std::optional(is_on) : std::nullopt;
}

}  // namespace

void take_reasoning(json::object& body) {
  const json::value* reasoning = body.if_contains("reasoning");
  const json::value* effort = reasoning != nullptr && reasoning->is_object() ? reasoning->get_object().if_contains("effort") : nullptr;
  if (effort == nullptr || effort->is_null()) return;
  json::value copy = *effort;
  json::value& field = body["reasoning_effort"];
  if (field.is_null()) field = std::move(copy);
}

void read_thinking(ObjectReader& reader, CompletionRequest& request) {
  const auto say = [&request](std::optional<bool> is_on) {
    if (is_on) request.chat.template_kwargs.emplace("enable_thinking", *is_on);
  };
  for (const char* name : {"enable_thinking", "think"})
    if (reader.find(name) != nullptr) say(reader.boolean(name, false));
  say(read_thinking_object(reader, request));
  say(read_reasoning_object(reader, request));
}

}  // namespace quire
