#include "server/answers/token_logprobs.h"

#include <fmt/format.h>

#include <span>

#include "text/utf8.h"

namespace quire {

namespace {

// Writes {"token": ..., "logprob": ..., "bytes": [...]. The caller closes the object.
void open_chat_entry(JsonWriter& json, const TokenNames& names, const TokenLogprob& entry) {
  json.begin_object().field("token", names.name(entry.token)).field("logprob", entry.logprob).begin_array("bytes");
  for (const char byte : names.tokenizer.token_bytes(entry.token)) json.value(unsigned{static_cast<unsigned char>(byte)});
  json.end_array();
}

}  // namespace

std::string TokenNames::text(TokenId token) const {
  return repair_utf8(tokenizer.token_bytes(token));
}

std::string TokenNames::name(TokenId token) const {
  return by_id ? fmt::format("token_id:{}", token) : text(token);
}

void write_token_logprobs(JsonWriter& json, const TokenNames& names, const std::vector<PositionLogprobs>& positions) {
  json.begin_array();
  for (const PositionLogprobs& position : positions) {
    if (position.entries.empty()) continue;
    open_chat_entry(json, names, position.entries.front());
    json.begin_array("top_logprobs");
    for (const TokenLogprob& entry : std::span(position.entries).subspan(1)) {
      open_chat_entry(json, names, entry);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace quire
