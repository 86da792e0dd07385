// The body of /v1/responses as a chat's, which is then read like any other. Where the body is read, on the server's thread or one of the
// job pool; it reads from the store of responses, which has a lock. Earlier responses are found for the request's own tenant only.
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
#include "server/request/field_names.h"
#include "server/request/object_reader.h"
#include "text/utf8.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr json::parse_options kStored{.max_depth = 256};  // it was read with fewer

std::string_view string_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

json::array stored_array(const std::string& text) {
  return std::move(json::parse(text, {}, kStored).get_array());
}

// "msg_", "rs_" or "fc_", what its response is called behind "resp_", and its place in the output.
Result<json::object> stored_item(ResponseShelf shelf, std::string_view id) {
  const std::size_t begin = id.find('_') + 1, end = id.rfind('_');
  const auto gone = [&] {
    return fail(ErrorCode::not_found, "", fmt::format("'{}' is no item that is kept here", repair_utf8(id.substr(0, 100))),
                "send the item itself");
  };
  if (begin == 0 || end <= begin) return gone();
  std::size_t index = 0;
  const auto parsed = std::from_chars(id.data() + end + 1, id.data() + id.size(), index);
  const auto response = shelf.store.find(shelf.tenant, fmt::format("resp_{}", id.substr(begin, end - begin)));
  if (parsed.ec != std::errc() || parsed.ptr != id.data() + id.size() || response == nullptr) return gone();
  json::value body = json::parse(response->body, {}, kStored);
  json::array& output = body.at("output").as_array();
  if (index >= output.size() || string_at(output[index].as_object(), "id") != id) return gone();
  return std::move(output[index].get_object());
}

// One request's way from body to chat; read_*() each take some of its fields, in the order of run().
class Translation {
 public:
  Translation(json::object& body, ResponseShelf shelf) : body_(&body), reader_(body), shelf_(shelf) {}

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
  void move_same_fields();
  void repeat(std::string_view name, const json::value& otherwise);
  [[nodiscard]] std::string settings();

  json::object* body_;
  ObjectReader reader_;
  ResponseShelf shelf_;
  json::object chat_;
  json::array conversation_;  // without instructions
  ResponseCall call_;
  std::shared_ptr<const StoredResponse> previous_;
  json::object settings_;
};

// In the answer as it came, or else its default.
void Translation::repeat(std::string_view name, const json::value& otherwise) {
  const json::value* value = body_->if_contains(name);
  settings_.emplace(name, value != nullptr && !value->is_null() ? *value : otherwise);
}

std::string Translation::settings() {
  for (const char* name :
       {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"})
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
  settings_.emplace("background", false);
  settings_.emplace("service_tier", "default");
  settings_.emplace("store", call_.is_stored);
  const std::string text = json::serialize(settings_);
  return "," + text.substr(1, text.size() - 2);
}

void Translation::read_previous() {
  const std::string id = reader_.text("previous_response_id");
  if (id.empty()) return;
  if (!shelf_.store.is_on())
    return reader_.reject("previous_response_id", "is given, and this server keeps no responses",
                          "send the whole conversation as input, or serve with --response-store 64MiB", ErrorCode::unsupported);
  previous_ = shelf_.store.find(shelf_.tenant, id);
  if (previous_ == nullptr)
    return reader_.reject("previous_response_id", fmt::format("'{}' is not kept here, or no longer", repair_utf8(id.substr(0, 100))),
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
  const auto find = [shelf = shelf_](std::string_view id) { return stored_item(shelf, id); };
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
  if (type != "function") return json::object{{"type", type}};  // left out, or a slip: where the chat is read
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

// Names are read flat, too.
void Translation::read_tool_choice() {
  const json::value* choice = reader_.find("tool_choice");
  if (choice == nullptr) return;
  const std::string_view type = choice->is_object() ? string_at(choice->get_object(), "type") : "function";
  if (type != "function" && type != "allowed_tools")
    return reader_.reject("tool_choice", type.empty() ? "has no type" : "has type " + describe(json::value(type)),
                          R"(use "auto", "none", "required", functions or allowed_tools)", ErrorCode::unsupported);
  chat_.emplace("tool_choice", *choice);
}

// {"format": ..., "verbosity": ...}.
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

// How it is summed up is nobody's business here: what the model thinks is told as it is.
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

void Translation::move_same_fields() {
  for (const char* name : {"model",
                           "temperature",
                           "top_p",
                           "parallel_tool_calls",
                           "stream",
                           "top_k",
                           "min_p",
                           "seed",
                           "stop",
                           "stop_token_ids",
                           "min_tokens",
                           "ignore_eos",
                           "presence_penalty",
                           "frequency_penalty",
                           "repetition_penalty",
                           "logit_bias",
                           "bad_words",
                           "allowed_token_ids",
                           "include_reasoning",
                           "chat_template_kwargs",
                           "cache_salt",
                           "priority",
                           "job_id",
                           "prompt_cache_key",
                           "is_last_step",
                           "tool",
                           "hints",
                           "vllm_xargs",
                           "verbosity",
                           "skip_special_tokens",
                           "include_stop_str_in_output",
                           "structured_outputs"})
    if (json::value* value = reader_.find(name)) chat_.emplace(name, *value);
  if (const auto most = reader_.integer("max_output_tokens", 1, std::numeric_limits<std::int32_t>::max()))
    chat_.emplace("max_completion_tokens", *most);
}

void Translation::read_others(std::vector<std::string>& ignored) {
  for (const char* hint : {"user", "safety_identifier", "prompt_cache_retention", "service_tier", "max_tool_calls", "stream_options",
                           "request_id", "context_management"})
    reader_.ignore(hint);
  if (json::value* options = reader_.find("prompt_cache_options")) {
    if (!options->is_object()) return reader_.reject("prompt_cache_options", "must be an object, not " + describe(*options));
    ObjectReader inner(options->get_object(), "prompt_cache_options.");
    for (const char* hint : {"mode", "ttl"}) inner.ignore(hint);
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
  reader_.only("background", "false", "wait for the answer, or stream it");
  reader_.only("conversation", "null", "use previous_response_id");
  reader_.only("prompt", "null", "prompts are not kept here; send input and instructions");
  for (const char* other : {"moderation", "access_programs", "image"}) reader_.only(other, "null", "remove it");
  // Known from the other APIs, and not here.
  reader_.only("messages", "null", "send input");
  reader_.only("max_tokens", "null", "send max_output_tokens");
  reader_.only("max_completion_tokens", "null", "send max_output_tokens");
  reader_.only("response_format", "null", "send text.format");
  reader_.only("reasoning_effort", "null", "send reasoning.effort");
  reader_.only("n", "1", "use /v1/chat/completions");
}

Result<ChatOfResponse> Translation::run(std::vector<std::string>& ignored) {
  call_.is_stored = reader_.boolean("store", true) && shelf_.store.is_on();
  read_previous();
  const std::string instructions = reader_.text("instructions");
  read_input();
  read_others(ignored);
  if (!reader_.failed()) call_.settings = settings();  // before its parts are taken
  read_tools();
  read_tool_choice();
  read_text(ignored);
  read_reasoning();
  read_logprobs();
  move_same_fields();
  if (const auto done = reader_.finish(ignored); !done) return std::unexpected(done.error());
  if (call_.is_stored) call_.conversation = json::serialize(conversation_);
  if (!instructions.empty()) conversation_.insert(conversation_.begin(), json::object{{"role", "system"}, {"content", instructions}});
  chat_.emplace("messages", std::move(conversation_));
  return ChatOfResponse{std::move(chat_), std::move(call_), std::move(previous_)};
}

constexpr FieldName kOfResponses[] = {
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
    {"max_completion_tokens", "max_output_tokens"},
    {"max_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"truncate_prompt_tokens", "truncation"},
    {"messages", "input"},
};

}  // namespace

Error in_words_of_responses(Error error) {
  return rename_fields(kOfResponses, std::move(error));
}

Result<ChatOfResponse> chat_of_response(json::object body, ResponseShelf shelf, std::vector<std::string>& ignored) {
  return Translation(body, shelf).run(ignored);
}

}  // namespace quire
