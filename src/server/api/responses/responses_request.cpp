// Translates the body of /v1/responses into a chat request, which is then read like a body of /v1/chat/completions. Runs where the body is
// read, on the server's thread or in the job pool. Reads the thread-safe response store, which returns only responses of the request's
// tenant.
#include "server/api/responses/responses_request.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "server/api/responses/responses_items.h"
#include "server/request/completion_request.h"
#include "server/request/field_names.h"
#include "server/request/object_reader.h"
#include "text/utf8.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr json::parse_options kStored{.max_depth = 256};  // stored bodies were parsed with a smaller max_depth, so this one always suffices

std::string_view string_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

json::array stored_array(const std::string& text) {
  return std::move(json::parse(text, {}, kStored).get_array());
}

// Returns a stored item. Its id consists of "msg_", "rs_" or "fc_", the id of its response without "resp_", and its index in the output.
Result<json::object> stored_item(TenantResponses tenant_responses, std::string_view id) {
  const std::size_t begin = id.find('_') + 1, end = id.rfind('_');
  const auto gone = [&] {
    return fail(ErrorCode::not_found, "", fmt::format("'{}' is not an item stored on this server", repair_utf8(id.substr(0, 100))),
                "send the item itself");
  };
  if (begin == 0 || end <= begin) return gone();
  std::size_t index = 0;
  const auto parsed = std::from_chars(id.data() + end + 1, id.data() + id.size(), index);
  const auto response = tenant_responses.store.find(tenant_responses.tenant, fmt::format("resp_{}", id.substr(begin, end - begin)));
  if (parsed.ec != std::errc() || parsed.ptr != id.data() + id.size() || response == nullptr) return gone();
  json::value body = json::parse(response->body, {}, kStored);
  json::array& output = body.at("output").as_array();
  if (index >= output.size() || string_at(output[index].as_object(), "id") != id) return gone();
  return std::move(output[index].get_object());
}

// Translates one body into a chat. Each read_*() consumes some fields; run() calls them in order.
class Translation {
 public:
  Translation(json::object& body, TenantResponses tenant_responses)
      : body_(&body), reader_(body, FieldApi::responses), tenant_responses_(tenant_responses) {}

  Result<ChatOfResponse> run(std::vector<std::string>& ignored);

 private:
  void read_previous();
  void read_input();
  void read_tools();
  void read_tool_choice();
  void read_text(std::vector<std::string>& ignored);
  void read_reasoning();
  void read_logprobs();
  void read_others(std::vector<std::string>& ignored);
  void read_limit();
  void repeat(std::string_view name, const json::value& otherwise);
  [[nodiscard]] std::string settings();

  json::object* body_;
  ObjectReader reader_;
  TenantResponses tenant_responses_;
  json::object chat_;
  json::array conversation_;  // without instructions
  ResponseCall call_;
  std::shared_ptr<const StoredResponse> previous_;
  json::object settings_;
};

// Copies a field of the request to the answer. If the field is missing or null, writes the default.
void Translation::repeat(std::string_view name, const json::value& otherwise) {
  const json::value* value = body_->if_contains(name);
  settings_.emplace(name, value != nullptr && !value->is_null() ? *value : otherwise);
}

// Adds the missing fields to an object of the client, because an answer always contains them.
void complete_fields(json::value& value, const json::object& otherwise) {
  if (!value.is_object()) return;
  for (const auto& [name, fallback] : otherwise)
    if (!value.get_object().contains(name)) value.get_object().emplace(name, fallback);
}

std::string Translation::settings() {
  for (const char* name : {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key",
                           "prompt_cache_retention", "safety_identifier", "user"})
    repeat(name, nullptr);
  repeat("metadata", json::object());
  repeat("parallel_tool_calls", true);
  repeat("reasoning", json::object{{"effort", nullptr}, {"summary", nullptr}});
  repeat("temperature", 1.0);
  repeat("text", json::object{{"format", json::object{{"type", "text"}}}});
  repeat("tool_choice", "auto");
  repeat("tools", json::array());
  repeat("top_logprobs", 0);
  repeat("top_p", 1.0);
  repeat("truncation", "disabled");
  for (const char* name : {"presence_penalty", "frequency_penalty"}) repeat(name, 0.0);
  complete_fields(settings_.at("reasoning"), {{"effort", nullptr}, {"summary", nullptr}});
  complete_fields(settings_.at("text"), {{"format", json::object{{"type", "text"}}}});
  if (json::value& tools = settings_.at("tools"); tools.is_array())
    for (json::value& tool : tools.get_array())
      if (tool.is_object() && string_at(tool.get_object(), "type") == "function")
        complete_fields(tool, {{"description", nullptr}, {"parameters", nullptr}, {"strict", nullptr}});
  settings_.emplace("background", false);
  settings_.emplace("service_tier", string_at(*body_, "service_tier") == kBackgroundTier ? kBackgroundTier : "default");
  settings_.emplace("store", call_.is_stored);
  const std::string text = json::serialize(settings_);
  return text.substr(1, text.size() - 2);
}

void Translation::read_previous() {
  const std::string id = reader_.text("previous_response_id");
  if (id.empty()) return;
  if (!tenant_responses_.store.is_on())
    return reader_.reject("previous_response_id", "is not supported: this server does not store responses",
                          "send the whole conversation as input, or start the server with --response-store 64MiB", ErrorCode::unsupported);
  previous_ = tenant_responses_.store.find(tenant_responses_.tenant, id);
  if (previous_ == nullptr)
    return reader_.reject("previous_response_id", fmt::format("'{}' is unknown or no longer stored", repair_utf8(id.substr(0, 100))),
                          "send the whole conversation as input", ErrorCode::not_found);
  conversation_ = stored_array(previous_->conversation);
}

void Translation::read_input() {
  const json::value* input = reader_.find("input");
  if (input == nullptr || (!input->is_string() && !input->is_array()))
    return reader_.reject("input", input == nullptr ? "is missing" : "must be a string or an array of items, not " + describe(*input),
                          R"(send "input": "...")");
  json::array items;
  if (input->is_string())
    items.emplace_back(json::object{
        {"type", "message"}, {"role", "user"}, {"content", json::array{json::object{{"type", "input_text"}, {"text", *input}}}}});
  const json::array& given = input->is_string() ? items : input->get_array();
  if (given.empty() && conversation_.empty()) return reader_.reject("input", "is empty", R"(send "input": "...")");
  const auto find = [tenant_responses = tenant_responses_](std::string_view id) { return stored_item(tenant_responses, id); };
  if (const auto added = append_items(given, find, conversation_); !added) return reader_.reject(added.error());
  if (call_.is_stored) call_.input = json::serialize(given);
}

Result<json::object> chat_tool(const json::value& tool, std::size_t index) {
  const std::string at = fmt::format("tools[{}]", index);
  const auto wrong = [&](const char* rest, std::string message, std::string remedy, ErrorCode code) {
    return std::unexpected(Error{code, at + rest, std::move(message), std::move(remedy)});
  };
  if (!tool.is_object()) return wrong("", "must be an object, not " + describe(tool), "", ErrorCode::invalid_argument);
  const json::object& fields = tool.get_object();
  const std::string_view type = string_at(fields, "type");
  if (type.empty()) return wrong(".type", "is missing", R"(send {"type": "function", ...})", ErrorCode::invalid_argument);
  if (type != "function") return json::object{{"type", type}};  // ignored or rejected when the chat is read
  json::object function;
  for (const char* name : {"name", "description", "parameters", "strict"})
    if (const json::value* value = fields.if_contains(name); value != nullptr && !value->is_null()) function.emplace(name, *value);
  return json::object{{"type", "function"}, {"function", std::move(function)}};
}

void Translation::read_tools() {
  const json::value* tools = reader_.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return reader_.reject("tools", "must be an array, not " + describe(*tools));
  json::array out;
  for (std::size_t i = 0; i < tools->get_array().size(); ++i) {
    auto tool = chat_tool(tools->get_array()[i], i);
    if (!tool) return reader_.reject(tool.error());
    out.emplace_back(*std::move(tool));
  }
  if (!out.empty()) chat_.emplace("tools", std::move(out));
}

// Copies tool_choice unchanged: the reader of chats also accepts a function as {"type": "function", "name": ...}.
void Translation::read_tool_choice() {
  const json::value* choice = reader_.find("tool_choice");
  if (choice == nullptr) return;
  const std::string_view type = choice->is_object() ? string_at(choice->get_object(), "type") : "function";
  if (type != "function" && type != "allowed_tools")
    return reader_.reject("tool_choice", type.empty() ? "has no type" : "has type " + describe(json::value(type)),
                          R"(use "auto", "none", "required", functions or allowed_tools)", ErrorCode::unsupported);
  chat_.emplace("tool_choice", *choice);
}

// Reads the field text: {"format": ..., "verbosity": ...}.
void Translation::read_text(std::vector<std::string>& ignored) {
  json::value* text = reader_.find("text");
  if (text == nullptr) return;
  if (!text->is_object()) return reader_.reject("text", "must be an object, not " + describe(*text), R"(send {"format": {...}})");
  ObjectReader inner(text->get_object(), "text.");
  inner.ignore("verbosity");
  if (const json::value* format = inner.find("format"); format != nullptr && format->is_object()) {
    json::object named;
    for (const char* name : {"name", "description", "schema", "strict"})
      if (const json::value* value = format->get_object().if_contains(name)) named.emplace(name, *value);
    const std::string_view type = string_at(format->get_object(), "type");
    json::object out{{"type", type}};
    if (type == "json_schema") out.emplace("json_schema", std::move(named));
    chat_.emplace("response_format", std::move(out));
  } else if (format != nullptr) {
    inner.reject("format", "must be an object, not " + describe(*format), R"(send {"type": "json_schema", ...})");
  }
  if (const auto done = inner.finish(ignored); !done) reader_.reject(done.error());
}

// Reads the effort. Ignores the kind of summary, because the reasoning is returned unchanged.
void Translation::read_reasoning() {
  json::value* reasoning = reader_.find("reasoning");
  if (reasoning == nullptr) return;
  if (!reasoning->is_object()) return reader_.reject("reasoning", "must be an object, not " + describe(*reasoning));
  if (const json::value* effort = reasoning->get_object().if_contains("effort"); effort != nullptr && !effort->is_null())
    chat_.emplace("reasoning_effort", *effort);
}

void Translation::read_logprobs() {
  const json::value* include = reader_.find("include");
  bool wanted = false;
  if (include != nullptr && !include->is_array())
    return reader_.reject("include", "must be an array of strings, not " + describe(*include));
  if (include != nullptr)
    for (const json::value& name : include->get_array()) wanted |= name == "message.output_text.logprobs";
  const auto count = reader_.integer("top_logprobs", 0, 20);
  if (!wanted && count.value_or(0) == 0) return;
  chat_.emplace("logprobs", true);
  chat_.emplace("top_logprobs", count.value_or(0));
}

void Translation::read_limit() {
  if (const auto most = reader_.integer("max_output_tokens", 1, std::numeric_limits<std::int32_t>::max()))
    chat_.emplace("max_completion_tokens", *most);
}

void Translation::read_others(std::vector<std::string>& ignored) {
  if (json::value* options = reader_.find("prompt_cache_options")) {
    if (!options->is_object()) return reader_.reject("prompt_cache_options", "must be an object, not " + describe(*options));
    ObjectReader inner(options->get_object(), "prompt_cache_options.");
    inner.ignore("mode");
    // prompt_cache_retention of the body has precedence
    if (const std::string ttl = inner.text("ttl"); !ttl.empty() && !body_->contains("prompt_cache_retention"))
      chat_.emplace("prompt_cache_retention", ttl);
    if (std::string with = inner.text("comparison_response_id"); !with.empty()) call_.compare_with = std::move(with);
    if (const auto done = inner.finish(ignored); !done) return reader_.reject(done.error());
  }
  if (const json::value* metadata = reader_.find("metadata"); metadata != nullptr && !metadata->is_object())
    reader_.reject("metadata", "must be an object, not " + describe(*metadata));
  const std::string truncation = reader_.text("truncation", "disabled");
  if (truncation == "auto")
    chat_.emplace("truncate_prompt_tokens", -1);
  else if (truncation != "disabled")
    reader_.reject("truncation", "is " + describe(json::value(truncation)), R"(use "auto" or "disabled")");
}

Result<ChatOfResponse> Translation::run(std::vector<std::string>& ignored) {
  call_.is_stored = reader_.boolean("store", true) && tenant_responses_.store.is_on();
  read_previous();
  const std::string instructions = reader_.text("instructions");
  read_input();
  read_others(ignored);
  if (!reader_.failed()) call_.settings = settings();  // before the parts of the body are consumed
  read_tools();
  read_tool_choice();
  read_text(ignored);
  read_reasoning();
  read_logprobs();
  read_limit();
  reader_.pass_on(chat_);
  if (const auto done = reader_.finish(ignored); !done) return std::unexpected(done.error());
  if (call_.is_stored) call_.conversation = json::serialize(conversation_);
  if (!instructions.empty()) conversation_.insert(conversation_.begin(), json::object{{"role", "system"}, {"content", instructions}});
  chat_.emplace("messages", std::move(conversation_));
  return ChatOfResponse{std::move(chat_), std::move(call_), std::move(previous_)};
}

constexpr FieldName kResponsesFieldNames[] = {
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
    {"max_completion_tokens", "max_output_tokens"},
    {"max_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"truncate_prompt_tokens", "truncation"},
    {"messages", "input"},
};

}  // namespace

Error with_responses_field_names(Error error) {
  return rename_fields(kResponsesFieldNames, std::move(error));
}

Result<ChatOfResponse> chat_of_response(json::object body, TenantResponses tenant_responses, std::vector<std::string>& ignored) {
  return Translation(body, tenant_responses).run(ignored);
}

}  // namespace quire
