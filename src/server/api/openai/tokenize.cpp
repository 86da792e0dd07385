#include "server/api/openai/tokenize.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_writer.h"
#include "server/api/openai/small_requests.h"
#include "text/utf8.h"

namespace quire {

Result<std::string> answer_tokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation) {
  auto parsed = parse_tokenize_request(std::exchange(body, {}), model.image_reading());
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.adapter_of(parsed->model); !named) return std::unexpected(named.error());
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
  return json_object([&](JsonWriter& json) { json.field("prompt", model.tokenizer().decode(parsed->tokens, false)); });
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
