// Translates Anthropic's body into a chat request. The chat request is then read like a body of /v1/chat/completions, so both APIs have the
// same reader, limits and path to the engine. Runs where the body is read, on the server's thread or in the job pool. Everything that is
// translated is checked here, because errors must name the fields that the client sent.
#include "server/api/anthropic/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/context_overflow.h"
#include "base/nearest_name.h"
#include "server/api/anthropic/block_fields.h"
#include "server/request/chat_images.h"
#include "server/request/field_names.h"
#include "server/request/object_reader.h"
#include "server/request/retention.h"
#include "server/request/tool_use.h"

namespace quire {

namespace json = boost::json;

namespace {

Error wrong_block(std::string field, std::string message, std::string remedy = {}, ErrorCode code = ErrorCode::invalid_argument) {
  return Error{code, std::move(field), std::move(message), std::move(remedy)};
}

std::string_view text_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

// Returns the type of a block, or an error.
Result<std::string_view> type_of_block(const json::value& block, const std::string& field) {
  const std::string_view type = block.is_object() ? text_at(block.get_object(), "type") : std::string_view();
  if (type.empty()) return std::unexpected(wrong_block(field, "must be an object with a type", R"(send {"type": "text", "text": "..."})"));
  return type;
}

Result<void> append_block_text(json::string& out, const json::value& block, const std::string& field) {
  const auto type = type_of_block(block, field);
  if (!type) return std::unexpected(type.error());
  if (*type != "text")
    return std::unexpected(wrong_block(field + ".type", fmt::format("is '{}'", type->substr(0, 60)),
                                       "send text blocks: this model supports text only", ErrorCode::unsupported));
  const json::value* text = block.get_object().if_contains("text");
  if (text == nullptr || !text->is_string()) return std::unexpected(wrong_block(field + ".text", "must be a string"));
  if (!out.empty()) out += '\n';
  out += text->get_string();
  return {};
}

// Returns a string unchanged, or joins text blocks with line feeds like the parts of a chat message.
Result<json::string> joined_text(const json::value& content, const std::string& field) {
  if (content.is_string()) return content.get_string();
  if (!content.is_array()) return std::unexpected(wrong_block(field, "must be a string or an array of blocks, not " + describe(content)));
  json::string out;
  for (std::size_t i = 0; i < content.get_array().size(); ++i) {
    const auto added = append_block_text(out, content.get_array()[i], fmt::format("{}[{}]", field, i));
    if (!added) return std::unexpected(added.error());
  }
  return out;
}

// Converts a {"type": "tool_result"} block to a chat message, because a chat has a separate message for each tool result.
Result<json::object> tool_message(const json::object& block, const std::string& field) {
  const std::string_view id = text_at(block, "tool_use_id");
  if (id.empty()) return std::unexpected(wrong_block(field + ".tool_use_id", "must be the id of a tool_use block"));
  const json::value* content = block.if_contains("content");
  auto text = content == nullptr || content->is_null() ? Result<json::string>(json::string()) : joined_text(*content, field + ".content");
  if (!text) return std::unexpected(text.error());
  // Chat templates have no field for is_error.
  const json::value* failed = block.if_contains("is_error");
  if (failed != nullptr && failed->is_bool() && failed->get_bool()) text->insert(0, "Error: ");
  return json::object{{"role", "tool"}, {"tool_call_id", id}, {"content", *std::move(text)}};
}

// The content of a user message: text or, with images, a list of parts.
struct UserContent {
  json::string text;
  json::array parts;

  void add_image(const json::object& block, const std::string& field);
  [[nodiscard]] bool any() const { return !text.empty() || !parts.empty(); }
  [[nodiscard]] json::value content();

 private:
  void flush() {
    if (!text.empty()) parts.push_back(json::object{{"type", "text"}, {"text", std::exchange(text, {})}});
  }
};

// Adds an image: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "..."}}, or a source with a URL.
void UserContent::add_image(const json::object& block, const std::string& field) {
  flush();
  const json::value* source = block.if_contains("source");
  json::string url;
  if (source != nullptr && source->is_object()) {
    const json::object& from = source->get_object();
    if (text_at(from, "type") == "base64")
      url.append("data:").append(text_at(from, "media_type")).append(";base64,").append(text_at(from, "data"));
    if (text_at(from, "type") == "url") url = text_at(from, "url");
  }
  parts.push_back(image_part(std::move(url), field));
}

json::value UserContent::content() {
  if (parts.empty()) return std::move(text);
  flush();
  return std::move(parts);
}

// Adds tool results before the user's text, because templates expect results directly after the calls.
Result<void> add_user_blocks(const json::array& blocks, const std::string& field, json::array& out) {
  UserContent user;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    const auto type = type_of_block(blocks[i], at);
    if (!type) return std::unexpected(type.error());
    if (*type == "tool_result") {
      auto message = tool_message(blocks[i].get_object(), at);
      if (!message) return std::unexpected(message.error());
      out.emplace_back(*std::move(message));
    } else if (*type == "image") {
      user.add_image(blocks[i].get_object(), at);
    } else if (const auto added = append_block_text(user.text, blocks[i], at); !added) {
      return added;
    }
  }
  if (user.any() || blocks.empty()) out.emplace_back(json::object{{"role", "user"}, {"content", user.content()}});
  return {};
}

Result<json::object> call_of_block(const json::object& block, const std::string& field) {
  const std::string_view id = text_at(block, "id"), name = text_at(block, "name");
  if (id.empty() || name.empty()) return std::unexpected(wrong_block(field, "must have an id and a name"));
  const json::value* input = block.if_contains("input");
  // A string is accepted because it is the incomplete input of a call that was cut off in a stream.
  if (input == nullptr || !(input->is_object() || input->is_string()))
    return std::unexpected(wrong_block(field + ".input", "must be an object"));
  return json::object{{"id", id}, {"type", "function"}, {"function", json::object{{"name", name}, {"arguments", *input}}}};
}

struct AssistantParts {
  json::string text, reasoning;
  json::array calls;
};

Result<void> add_assistant_block(const json::value& block, const std::string& field, AssistantParts& parts) {
  const auto type = type_of_block(block, field);
  if (!type) return std::unexpected(type.error());
  if (*type == "redacted_thinking") return {};  // the server cannot read it
  if (*type == "thinking") {
    parts.reasoning += text_at(block.get_object(), "thinking");
    return {};
  }
  if (*type != "tool_use") return append_block_text(parts.text, block, field);
  auto call = call_of_block(block.get_object(), field);
  if (!call) return std::unexpected(call.error());
  parts.calls.emplace_back(*std::move(call));
  return {};
}

Result<void> add_assistant_blocks(const json::array& blocks, const std::string& field, json::array& out) {
  AssistantParts parts;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (const auto added = add_assistant_block(blocks[i], fmt::format("{}[{}]", field, i), parts); !added) return added;
  json::object message{{"role", "assistant"}, {"content", std::move(parts.text)}};
  if (!parts.reasoning.empty()) message.emplace("reasoning_content", std::move(parts.reasoning));
  if (!parts.calls.empty()) message.emplace("tool_calls", std::move(parts.calls));
  out.emplace_back(std::move(message));
  return {};
}

// Adds a system message that follows other messages (a beta of Anthropic's). The client program writes such messages. Most templates accept
// a system prompt only at the beginning. The text is therefore appended to the previous user message, between the tags that the same
// clients use without the beta.
Result<void> add_system_turn(const json::value& content, const std::string& field, json::array& out) {
  const auto text = joined_text(content, field);
  if (!text) return std::unexpected(text.error());
  json::string marked = "<system-reminder>\n";
  marked.append(*text).append("\n</system-reminder>");
  if (out.empty() || out.back().get_object().at("role") != "user") {
    out.emplace_back(json::object{{"role", "user"}, {"content", std::move(marked)}});
    return {};
  }
  json::value& before = out.back().get_object().at("content");
  if (before.is_array())
    before.get_array().push_back(json::object{{"type", "text"}, {"text", std::move(marked)}});
  else
    before.get_string().append("\n").append(marked);
  return {};
}

Result<void> add_turn(const json::value& turn, std::size_t index, json::array& out) {
  const std::string at = fmt::format("messages[{}]", index);
  if (!turn.is_object()) return std::unexpected(wrong_block(at, "must be an object, not " + describe(turn)));
  const std::string_view role = text_at(turn.get_object(), "role");
  if (role != "user" && role != "assistant" && (role != "system" || index == 0))
    return std::unexpected(wrong_block(at + ".role", "must be user or assistant", "send the system prompt as system"));
  const json::value* content = turn.get_object().if_contains("content");
  if (content == nullptr || (!content->is_string() && !content->is_array()))
    return std::unexpected(wrong_block(at + ".content", "must be a string or an array of blocks"));
  if (role == "system") return add_system_turn(*content, at + ".content", out);
  if (content->is_string()) {
    out.emplace_back(json::object{{"role", role}, {"content", *content}});
    return {};
  }
  const json::array& blocks = content->get_array();
  return role == "user" ? add_user_blocks(blocks, at + ".content", out) : add_assistant_blocks(blocks, at + ".content", out);
}

// The first block of Claude Code's system prompt is a billing header. It is removed because it differs in each request and is not meant for
// the model.
constexpr std::string_view kBilling = "x-anthropic-billing-header:";

void drop_billing(ObjectReader& reader, json::value& system) {
  if (!system.is_array()) return;
  json::array& blocks = system.get_array();
  if (blocks.empty() || !blocks.front().is_object() || !text_at(blocks.front().get_object(), "text").starts_with(kBilling)) return;
  blocks.erase(blocks.begin());
  reader.leave_out("system[0]:x-anthropic-billing-header");
}

void read_turns(ObjectReader& reader, json::array& out) {
  if (json::value* system = reader.find("system")) {
    drop_billing(reader, *system);
    auto text = joined_text(*system, "system");
    if (!text) return reader.reject(text.error());
    if (!text->empty()) out.emplace_back(json::object{{"role", "system"}, {"content", *std::move(text)}});
  }
  const json::value* turns = reader.find("messages");
  if (turns == nullptr || !turns->is_array() || turns->get_array().empty())
    return reader.reject("messages", "must be an array with at least one message", R"(send [{"role": "user", "content": "..."}])");
  for (std::size_t i = 0; i < turns->get_array().size(); ++i)
    if (const auto added = add_turn(turns->get_array()[i], i, out); !added) return reader.reject(added.error());
  if (out.back().get_object().at("role") == "assistant")
    reader.reject("messages", "end with an assistant message, which this server does not continue", "end with a user message",
                  ErrorCode::unsupported);
}

Result<json::object> function_of(const json::value& tool, std::size_t index) {
  const std::string at = fmt::format("tools[{}]", index);
  if (!tool.is_object()) return std::unexpected(wrong_block(at, "must be an object, not " + describe(tool)));
  const json::object& fields = tool.get_object();
  const json::value* type = fields.if_contains("type");
  if (type != nullptr && !type->is_null() && *type != "custom") {
    // Accepts Anthropic's server tools, and tools that its models know without a schema. Both are dropped when the chat is read.
    if (foreign_type(tool).empty() || nearest_name(foreign_type(tool), {"custom"}))
      return std::unexpected(wrong_block(at + ".type", "is " + describe(*type), R"(did you mean "custom"?)"));
    return json::object{{"type", *type}};
  }
  const json::value* schema = fields.if_contains("input_schema");
  if (schema == nullptr || !schema->is_object()) return std::unexpected(wrong_block(at + ".input_schema", "must be a JSON schema"));
  json::object function{{"name", text_at(fields, "name")}, {"parameters", *schema}};
  for (const char* name : {"description", "strict"})
    if (const json::value* value = fields.if_contains(name); value != nullptr && !value->is_null()) function.emplace(name, *value);
  return json::object{{"type", "function"}, {"function", std::move(function)}};
}

void read_functions(ObjectReader& reader, json::object& chat) {
  const json::value* tools = reader.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return reader.reject("tools", "must be an array, not " + describe(*tools));
  json::array functions;
  for (std::size_t i = 0; i < tools->get_array().size(); ++i) {
    auto function = function_of(tools->get_array()[i], i);
    if (!function) return reader.reject(function.error());
    functions.emplace_back(*std::move(function));
  }
  if (!functions.empty()) chat.emplace("tools", std::move(functions));
}

void read_which_tool(ObjectReader& reader, const MessagesCall& call, std::vector<std::string>& ignored, json::object& chat) {
  json::value* choice = reader.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_object()) return reader.reject("tool_choice", "must be an object, not " + describe(*choice), R"(send {"type": "auto"})");
  ObjectReader inner(choice->get_object(), "tool_choice.");
  const std::string type = inner.text("type"), name = inner.text("name");
  if (inner.boolean("disable_parallel_tool_use", false)) chat.emplace("parallel_tool_calls", false);
  if (const auto done = inner.finish(ignored, call.is_beta); !done) return reader.reject(done.error());
  if (type == "tool" && !name.empty())
    chat.emplace("tool_choice", json::object{{"type", "function"}, {"function", json::object{{"name", name}}}});
  else if (type == "auto" || type == "none")
    chat.emplace("tool_choice", type);
  else if (type == "any")
    chat.emplace("tool_choice", "required");
  else
    reader.reject("tool_choice", type == "tool" ? "does not name a tool" : "has a missing or unknown type",
                  "use the type auto, any, none, or tool with a name");
}

// Reads `thinking`. Ignores budget_tokens and display: max_tokens limits reasoning and text together, and all reasoning is returned.
void read_thinking(ObjectReader& reader, std::vector<std::string>& ignored, json::object& chat) {
  json::value* thinking = reader.find("thinking");
  if (thinking == nullptr) return;
  std::string type;
  if (thinking->is_object()) {
    ObjectReader inner(thinking->get_object(), "thinking.");
    type = inner.text("type");
    for (const char* hint : {"budget_tokens", "display"}) inner.ignore(hint);
    if (const auto done = inner.finish(ignored, true); !done) return reader.reject(done.error());
  }
  if (type == "enabled" || type == "disabled")
    chat.insert_or_assign("enable_thinking", type == "enabled");
  else if (type != "adaptive")
    reader.reject("thinking", "has a missing or unknown type", R"(send {"type": "enabled"} or {"type": "disabled"})");
}

// Reads an output format: {"type": "json_schema", "schema": {...}}.
void read_form(ObjectReader& reader, std::string_view field, const json::value& form, json::object& chat) {
  const json::value* schema = form.is_object() ? form.get_object().if_contains("schema") : nullptr;
  if (schema == nullptr || text_at(form.get_object(), "type") != "json_schema")
    return reader.reject(field, "must be a JSON schema", R"(send {"type": "json_schema", "schema": {...}})");
  json::object named{{"name", "answer"}, {"schema", *schema}, {"strict", true}};
  chat.emplace("response_format", json::object{{"type", "json_schema"}, {"json_schema", std::move(named)}});
}

void read_output_config(ObjectReader& reader, const MessagesCall& call, std::vector<std::string>& ignored, json::object& chat) {
  json::value* config = reader.find("output_config");
  if (config == nullptr) return;
  if (!config->is_object()) return reader.reject("output_config", "must be an object, not " + describe(*config));
  ObjectReader inner(config->get_object(), "output_config.");
  if (const std::string effort = inner.text("effort"); !effort.empty()) chat.emplace("reasoning_effort", effort);
  if (const json::value* form = inner.find("format")) read_form(inner, "format", *form, chat);
  if (const auto done = inner.finish(ignored, call.is_beta); !done) reader.reject(done.error());
}

// Reads output_format, the former name of output_config.format.
void read_output_format(ObjectReader& reader, json::object& chat) {
  const json::value* form = reader.find("output_format");
  if (form == nullptr) return;
  if (chat.contains("response_format"))
    return reader.reject("output_format", "cannot be combined with output_config.format, which means the same", "send only one of them");
  read_form(reader, "output_format", *form, chat);
}

void read_stops(ObjectReader& reader, json::object& chat) {
  json::value* stops = reader.find("stop_sequences");
  if (stops == nullptr) return;
  if (!stops->is_array()) return reader.reject("stop_sequences", "must be an array of strings, not " + describe(*stops));
  chat.emplace("stop", std::move(*stops));
}

// Reads metadata.user_id, in which agents send the name of a session.
void read_metadata(ObjectReader& reader, json::object& chat) {
  const json::value* metadata = reader.find("metadata");
  if (metadata == nullptr) return;
  const std::string_view user = metadata->is_object() ? text_at(metadata->get_object(), "user_id") : std::string_view();
  if (!user.empty()) chat.emplace("prompt_cache_key", user);
  if (user.empty() || metadata->get_object().size() > 1) reader.leave_out("metadata");
}

// Reads diagnostics.previous_message_id. The client asks why its prompt could not use the cached prompt of that message. Returns an empty
// string if the field is null, and nullopt if the body has no diagnostics.
std::optional<std::string> read_diagnostics(ObjectReader& reader, const MessagesCall& call, std::vector<std::string>& ignored) {
  json::value* diagnostics = reader.find("diagnostics");
  if (diagnostics == nullptr) return std::nullopt;
  if (!diagnostics->is_object()) {
    reader.reject("diagnostics", "must be an object, not " + describe(*diagnostics), R"(send {"previous_message_id": "msg_..."})");
    return std::nullopt;
  }
  ObjectReader inner(diagnostics->get_object(), "diagnostics.");
  std::string previous = inner.text("previous_message_id");
  if (const auto done = inner.finish(ignored, call.is_beta); !done) reader.reject(done.error());
  return previous;
}

constexpr FieldName kMessagesFieldNames[] = {
    {"response_format.json_schema", "output_config.format"},
    {"response_format", "output_config.format"},
    {"max_completion_tokens", "max_tokens"},
    {"reasoning_effort", "output_config.effort"},
    {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
    {"stop", "stop_sequences"},
};

}  // namespace

// Writes context overflows with the wording of Anthropic's API, because Claude Code and other clients parse the numbers and then compact
// the conversation or request a shorter answer. In other errors, only renames the fields.
Error with_messages_field_names(Error error) {
  const auto overflow = overflow_of(error);
  if (!overflow) return rename_fields(kMessagesFieldNames, std::move(error));
  constexpr const char* kRemedy = "compact the conversation, or start the server with a larger --max-model-len";
  if (overflow->prompt_tokens < overflow->max_model_len) {
    return {
        ErrorCode::invalid_argument, "",
        fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input length or `max_tokens` and try again",
                    overflow->prompt_tokens, overflow->answer_tokens, overflow->max_model_len),
        kRemedy};
  }
  // The maximum is one less than the context length, because every answer needs at least one token.
  return {ErrorCode::invalid_argument, "",
          fmt::format("prompt is too long: {} tokens > {} maximum{}", overflow->prompt_tokens, overflow->max_model_len - 1,
                      overflow->is_at_least ? ", and only part of the prompt was counted" : ""),
          kRemedy};
}

Result<ChatOfMessages> chat_of_messages(json::object body, MessagesCall call, std::vector<std::string>& ignored) {
  ObjectReader reader(body, FieldApi::messages);
  ChatOfMessages out;
  json::object& chat = out.chat;
  if (reader.text("model").empty()) reader.reject("model", "is missing", "use a model from /v1/models");
  const auto most = reader.integer("max_tokens", 1, std::numeric_limits<std::int32_t>::max());
  if (most) chat.emplace("max_tokens", *most);
  if (!most && !call.counts_only) reader.reject("max_tokens", "is missing", "send the maximum number of answer tokens");
  const Result<std::uint32_t> block_retention_s = name_unknown_fields(body, call.is_beta, ignored);
  if (!block_retention_s) reader.reject(block_retention_s.error());
  if (const auto longest = std::max(read_retention(reader), block_retention_s.value_or(0)); longest > 0)
    chat.emplace("prompt_cache_retention", fmt::format("{}s", longest));
  json::array turns;
  read_turns(reader, turns);
  read_functions(reader, chat);
  read_which_tool(reader, call, ignored, chat);
  read_thinking(reader, ignored, chat);
  read_output_config(reader, call, ignored, chat);
  read_output_format(reader, chat);
  if (json::value* management = reader.find("context_management")) out.edits = read_context_edits(reader, *management);
  read_stops(reader, chat);
  reader.pass_on(chat);
  read_metadata(reader, chat);
  out.previous = read_diagnostics(reader, call, ignored);
  if (const auto done = reader.finish(ignored, call.is_beta); !done) return std::unexpected(done.error());
  chat.emplace("messages", std::move(turns));
  return out;
}

}  // namespace quire
