#include "server/api/openai/small_requests.h"

#include <limits>
#include <utility>

#include "server/request/chat_messages.h"
#include "server/request/object_reader.h"
#include "server/request/token_fields.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxMaxTokens = std::numeric_limits<std::int32_t>::max();

}  // namespace

Result<ForkCall> parse_fork_call(std::string_view body, std::uint32_t max_choices) {
  auto object = parse_object(body.empty() ? "{}" : body);
  if (!object) return std::unexpected(object.error());
  ObjectReader reader(*object);
  ForkCall call;
  call.choice = static_cast<std::uint32_t>(reader.integer("choice", 0, 0, kMaxMaxTokens));
  call.fork.n = static_cast<std::uint32_t>(reader.integer("n", 1, 1, max_choices));
  if (const auto seed = reader.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()))
    call.fork.seed = static_cast<std::uint64_t>(*seed);
  if (const auto most = reader.integer("max_tokens", 1, kMaxMaxTokens)) call.fork.max_tokens = static_cast<std::uint32_t>(*most);
  call.stream = reader.boolean("stream", false);
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  return call;
}

Result<InputCall> parse_input_call(std::string_view body, std::uint32_t vocab_size) {
  auto object = parse_object(body.empty() ? "{}" : body);
  if (!object) return std::unexpected(object.error());
  ObjectReader reader(*object);
  InputCall call;
  if (const json::value* prompt = reader.find("prompt"); prompt != nullptr && prompt->is_string())
    call.prompt = std::string(prompt->get_string());
  else if (prompt != nullptr)
    call.prompt = read_tokens(reader, "prompt", *prompt, vocab_size);
  call.add_special_tokens = reader.boolean("add_special_tokens", false);
  call.is_last = reader.boolean("end", false);
  if (!call.prompt && !call.is_last) reader.reject("prompt", "is missing", R"(send text or token ids, or "end": true)");
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  return call;
}

Result<TokenizeRequest> parse_tokenize_request(std::string_view body, const ImageReading& image_reading) {
  auto object = parse_object(body);
  if (!object) return std::unexpected(object.error());
  ObjectReader reader(*object);
  TokenizeRequest request;
  request.model = reader.text("model");
  if (object->contains("content")) {
    request.is_llama_cpp = true;
    request.input = reader.text("content");
    request.add_special_tokens = reader.boolean("add_special", false);
    request.parse_special = reader.boolean("parse_special", true);
    request.return_token_strs = reader.boolean("with_pieces", false);
    if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
    return request;
  }
  if (object->contains("messages")) {
    ChatPrompt chat = read_chat_prompt(reader, image_reading);
    (void)read_tool_use(reader, chat.tools);
    request.input = std::move(chat);
    request.add_special_tokens = reader.boolean("add_special_tokens", false);
    reader.only("chat_template", "null", "start the server with --chat-template");
  } else {
    if (reader.find("prompt") == nullptr) reader.reject("prompt", "is missing", "send a string, or messages");
    request.input = reader.text("prompt");
    request.add_special_tokens = reader.boolean("add_special_tokens", true);
  }
  request.return_token_strs = reader.boolean("return_token_strs", false);
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  return request;
}

Result<DetokenizeRequest> parse_detokenize_request(std::string_view body, std::uint32_t vocab_size) {
  auto object = parse_object(body);
  if (!object) return std::unexpected(object.error());
  ObjectReader reader(*object);
  DetokenizeRequest request;
  request.model = reader.text("model");
  if (const json::value* tokens = reader.find("tokens"))
    request.tokens = read_tokens(reader, "tokens", *tokens, vocab_size);
  else
    reader.reject("tokens", "is missing", "send an array of token ids");
  if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  return request;
}

}  // namespace quire
