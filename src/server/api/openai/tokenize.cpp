#include "server/api/openai/tokenize.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_writer.h"
#include "server/api/openai/small_requests.h"
#include "text/utf8.h"

namespace quire {

namespace {

// Answers in the form of llama.cpp. A piece is a string, or a list of bytes if it is not valid UTF-8.
Result<std::string> answer_llama_cpp(const TokenizeRequest& request, const ServedModel& model, const CancellationPoint* cancellation) {
  const EncodeOptions options{
      .add_special = request.add_special_tokens, .parse_special = request.parse_special, .cancellation = cancellation};
  const auto tokens = model.encode(std::get<std::string>(request.input), options, "content");
  if (!tokens) return std::unexpected(tokens.error());
  return json_object([&](JsonWriter& json) {
    if (!request.return_token_strs) {
      json.field("tokens", *tokens);
      return;
    }
    json.begin_array("tokens");
    for (const TokenId token : *tokens) {
      const std::string_view bytes = model.tokenizer().token_bytes(token);
      json.begin_object().field("id", token);
      if (is_valid_utf8(bytes)) {
        json.field("piece", bytes);
      } else {
        json.begin_array("piece");
        for (const char byte : bytes) json.value(unsigned{static_cast<unsigned char>(byte)});
        json.end_array();
      }
      json.end_object();
    }
    json.end_array();
  });
}

}  // namespace

Result<std::string> answer_tokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation) {
  auto parsed = parse_tokenize_request(std::exchange(body, {}), model.image_reading());
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.adapter_of(parsed->model); !named) return std::unexpected(named.error());
  if (parsed->is_llama_cpp) return answer_llama_cpp(*parsed, model, cancellation);
  const auto tokens = model.encode_input(std::move(parsed->input), parsed->add_special_tokens, cancellation);
  if (!tokens) return std::unexpected(tokens.error());
  return json_object([&](JsonWriter& json) {
    json.field("count", tokens->size()).field("max_model_len", model.max_model_len()).field("tokens", *tokens);
    if (!parsed->return_token_strs) {
      json.field("token_strs", nullptr);
      return;
    }
    json.begin_array("token_strs");
    for (const TokenId token : *tokens) json.value(repair_utf8(model.tokenizer().token_bytes(token)));
    json.end_array();
  });
}

Result<std::string> answer_detokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation) {
  const auto parsed = parse_detokenize_request(std::exchange(body, {}), model.tokenizer().vocab_size());
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.adapter_of(parsed->model); !named) return std::unexpected(named.error());
  if (parsed->tokens.size() > model.max_model_len()) {
    return fail(ErrorCode::invalid_argument, "tokens",
                fmt::format("has {} tokens, more than the maximum of {}", parsed->tokens.size(), model.max_model_len()),
                "send them in parts");
  }
  pass(cancellation);
  return json_object([&](JsonWriter& json) {
    const std::string text = model.tokenizer().decode(parsed->tokens, false);
    json.field("prompt", text).field("content", text);  // the field of vLLM and the field of llama.cpp
  });
}

std::string tokenizer_info(const ServedModel& model) {
  return json_object([&](JsonWriter& json) {
    json.field("tokenizer_class", "quire").field("vocab_size", model.tokenizer().vocab_size());
    json.field("model_max_length", model.max_model_len());
    json.field("bos_token", unless_empty(model.bos())).field("eos_token", unless_empty(model.eos()));
    json.field("chat_template", unless_empty(model.chat_template()));
  });
}

}  // namespace quire
