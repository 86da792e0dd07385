#include "server/api/openai/tokenize.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"
#include "server/api/openai/small_requests.h"
#include "text/utf8.h"

namespace quire {

Result<std::string> answer_tokenize(std::string body, const ServedModel& model, const CancellationPoint* cancellation) {
  auto parsed = parse_tokenize_request(std::exchange(body, {}), model.image_reading());
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.adapter_of(parsed->model); !named) return std::unexpected(named.error());
  const auto tokens = model.encode_input(std::move(parsed->input), parsed->add_special_tokens, cancellation);
  if (!tokens) return std::unexpected(tokens.error());
  std::string strings = "null";
  if (parsed->return_token_strs) {
    strings = "[";
    for (const TokenId token : *tokens) {
      if (strings.size() > 1) strings += ',';
      append_json_string(strings, repair_utf8(model.tokenizer().token_bytes(token)));
    }
    strings += ']';
  }
  return fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}],"token_strs":{}}})", tokens->size(), model.max_model_len(),
                     fmt::join(*tokens, ","), strings);
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
  return fmt::format(R"({{"prompt":{}}})", json_string(model.tokenizer().decode(parsed->tokens, false)));
}

std::string tokenizer_info(const ServedModel& model) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? std::string("null") : json_string(text); };
  return fmt::format(
      R"({{"tokenizer_class":"quire","vocab_size":{},"model_max_length":{},"bos_token":{},"eos_token":{},"chat_template":{}}})",
      model.tokenizer().vocab_size(), model.max_model_len(), text_or_null(model.bos()), text_or_null(model.eos()),
      text_or_null(model.chat_template()));
}

}  // namespace quire
