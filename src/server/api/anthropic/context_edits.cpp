// Removes parts of a conversation before it is read, as the client requests (context_management). Runs where the body is read, on the
// server's thread or in the job pool. If an edit depends on the number of tokens and counting fails, the request fails.
#include "server/api/anthropic/context_edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <map>
#include <span>
#include <string_view>
#include <utility>

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 31;
constexpr std::size_t kMaxEdits = 16;
// Replaces a cleared result. Agents that clear results themselves write the same text.
constexpr std::string_view kCleared = "[Old tool result content cleared]";

std::string_view text_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

// Reads an amount: {"type": "input_tokens", "value": 5}. Returns nullopt if the field is missing or not an object. Reports errors to the
// reader; `types` are the valid types.
struct Amount {
  std::string type;
  std::uint64_t value = 0;
};
std::optional<Amount> read_amount(ObjectReader& reader, std::string_view name, const std::vector<std::string_view>& types,
                                  const std::string& path) {
  json::value* amount = reader.find(name);
  if (amount == nullptr) return std::nullopt;
  const auto wrong = [&] {
    reader.reject(name, "must be an object with a supported type and a value",
                  fmt::format(R"(send {{"type": "{}", "value": 5}})", types.front()));
  };
  if (!amount->is_object()) {
    wrong();
    return std::nullopt;
  }
  ObjectReader inner(amount->get_object(), fmt::format("{}{}.", path, name));
  Amount read{.type = inner.text("type")};
  if (std::ranges::find(types, read.type) == types.end()) wrong();
  read.value = static_cast<std::uint64_t>(inner.integer("value", 0, 0, kMostTokens));
  if (const auto done = inner.finish(); !done) reader.reject(done.error());
  return read;
}

ClearThinking read_clear_thinking(ObjectReader& reader, const std::string& path) {
  ClearThinking edit;
  const json::value* keep = reader.find("keep");
  if (keep != nullptr && *keep == "all")
    edit.keep.reset();
  else if (const auto amount = read_amount(reader, "keep", {"thinking_turns"}, path))
    edit.keep = amount->value;
  return edit;
}

std::vector<std::string> read_names(ObjectReader& reader, std::string_view field) {
  std::vector<std::string> names;
  const json::value* sent = reader.find(field);
  if (sent == nullptr) return names;
  if (!sent->is_array()) {
    reader.reject(field, "must be an array of tool names, not " + describe(*sent));
    return names;
  }
  for (const json::value& name : sent->get_array())
    if (name.is_string()) names.emplace_back(name.get_string());
  return names;
}

ClearToolUses read_clear_tool_uses(ObjectReader& reader, const std::string& path) {
  ClearToolUses edit;
  if (const auto trigger = read_amount(reader, "trigger", {"input_tokens", "tool_uses"}, path)) {
    edit.trigger = trigger->value;
    edit.counts_tools = trigger->type == "tool_uses";
  }
  if (const auto keep = read_amount(reader, "keep", {"tool_uses"}, path)) edit.keep = keep->value;
  if (const auto least = read_amount(reader, "clear_at_least", {"input_tokens"}, path)) edit.clear_at_least = least->value;
  edit.excluded = read_names(reader, "exclude_tools");
  const json::value* inputs = reader.find("clear_tool_inputs");
  edit.clears_inputs = inputs != nullptr && *inputs != false;
  if (edit.clears_inputs && *inputs != true) edit.inputs_of = read_names(reader, "clear_tool_inputs");
  return edit;
}

json::array& messages_of(json::object& chat) {
  return chat.at("messages").as_array();
}

bool has_role(const json::value& message, std::string_view role) {
  return text_in(message.get_object(), "role") == role;
}

// Returns whether the message begins a turn: its role is user, and no tool result precedes it.
bool begins_turn(const json::array& messages, std::size_t index) {
  return has_role(messages[index], "user") && (index == 0 || !has_role(messages[index - 1], "tool"));
}

void clear_thinking(const ClearThinking& edit, json::array& messages) {
  if (!edit.keep) return;
  std::uint64_t num_turns = 0;
  bool is_counted = false;  // whether num_turns includes the current turn
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (begins_turn(messages, i)) is_counted = false;
    json::object& message = messages[i].get_object();
    if (!message.contains("reasoning_content")) continue;
    if (!std::exchange(is_counted, true)) ++num_turns;
    if (num_turns > *edit.keep) message.stable_erase("reasoning_content");
  }
}

// The function and the result of one tool call.
struct ResultOfCall {
  json::object* function = nullptr;
  json::value* result = nullptr;
};

// Returns all tool calls that have a result, in order.
std::vector<ResultOfCall> tool_uses(json::array& messages) {
  std::vector<ResultOfCall> uses;
  std::map<std::string_view, json::object*> functions;
  for (json::value& value : messages) {
    json::object& message = value.get_object();
    if (json::value* calls = message.if_contains("tool_calls"))
      for (json::value& call : calls->as_array()) functions[text_in(call.get_object(), "id")] = &call.at("function").as_object();
    if (!has_role(value, "tool")) continue;
    const auto function = functions.find(text_in(message, "tool_call_id"));
    if (function != functions.end()) uses.push_back({.function = function->second, .result = &message["content"]});
  }
  return uses;
}

bool is_among(const std::vector<std::string>& names, const json::object& function) {
  return std::ranges::find(names, text_in(function, "name")) != names.end();
}

// Clears the results of all calls except the last `keep` and the calls of tools in `excluded`.
void clear_old_uses(const ClearToolUses& edit, json::array& messages) {
  std::vector<ResultOfCall> uses = tool_uses(messages);
  std::erase_if(uses, [&](const ResultOfCall& use) { return is_among(edit.excluded, *use.function); });
  const std::size_t num_kept = std::min<std::size_t>(uses.size(), edit.keep);
  for (const ResultOfCall& use : std::span(uses).first(uses.size() - num_kept)) {
    *use.result = json::value(kCleared);
    if (edit.clears_inputs && (edit.inputs_of.empty() || is_among(edit.inputs_of, *use.function)))
      (*use.function)["arguments"] = json::object();
  }
}

Result<void> clear_tool_uses(const ClearToolUses& edit, json::object& chat, const CountChat& count) {
  std::size_t before = 0;
  json::array& messages = messages_of(chat);
  // Every token has at least one byte, so the tokens of a short conversation are not counted.
  const bool may_begin = edit.counts_tools ? tool_uses(messages).size() > edit.trigger : json::serialize(chat).size() > edit.trigger;
  if (!may_begin) return {};
  if (!edit.counts_tools || edit.clear_at_least > 0) {
    const auto counted = count(chat);
    if (!counted) return std::unexpected(counted.error());
    before = *counted;
  }
  if (!edit.counts_tools && before <= edit.trigger) return {};
  json::object cleared = chat;
  clear_old_uses(edit, messages_of(cleared));
  if (edit.clear_at_least > 0) {
    const auto after = count(cleared);
    if (!after) return std::unexpected(after.error());
    if (before < *after + edit.clear_at_least) return {};
  }
  chat = std::move(cleared);
  return {};
}

}  // namespace

std::vector<ContextEdit> read_context_edits(ObjectReader& reader, json::value& management) {
  std::vector<ContextEdit> edits;
  const auto wrong = [&](const std::string& field, const json::value& value) {
    reader.reject(field, "must be an object with edits, not " + describe(value), R"(send {"edits": [...]})");
    return edits;
  };
  if (!management.is_object()) return wrong("context_management", management);
  json::value* sent = management.get_object().if_contains("edits");
  if (sent == nullptr) return edits;
  if (!sent->is_array() || sent->get_array().size() > kMaxEdits) return wrong("context_management.edits", *sent);
  for (std::size_t i = 0; i < sent->get_array().size(); ++i) {
    const std::string field = fmt::format("context_management.edits[{}]", i);
    if (!sent->get_array()[i].is_object()) return wrong(field, sent->get_array()[i]);
    ObjectReader inner(sent->get_array()[i].get_object(), field + ".");
    const std::string type = inner.text("type"), path = field + ".";
    if (type.starts_with("clear_thinking_"))
      edits.emplace_back(read_clear_thinking(inner, path));
    else if (type.starts_with("clear_tool_uses_"))
      edits.emplace_back(read_clear_tool_uses(inner, path));
    else
      reader.leave_out(fmt::format("{}:{}", field, type));
    std::vector<std::string> unknown;
    if (const auto done = inner.finish(unknown, true); !done) reader.reject(done.error());
    if (type.starts_with("clear_"))
      for (std::string& name : unknown) reader.leave_out(std::move(name));
  }
  return edits;
}

Result<void> apply_context_edits(const std::vector<ContextEdit>& edits, json::object& chat, const CountChat& count) {
  for (const ContextEdit& edit : edits)
    if (const auto* thinking = std::get_if<ClearThinking>(&edit))
      clear_thinking(*thinking, messages_of(chat));
    else if (const auto done = clear_tool_uses(std::get<ClearToolUses>(edit), chat, count); !done)
      return done;
  return {};
}

}  // namespace quire
