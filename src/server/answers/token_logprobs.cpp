#include "server/answers/token_logprobs.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/append_format.h"
#include "base/json_text.h"
#include "text/utf8.h"

namespace quire {

namespace {

// Writes {"token": ..., "logprob": ..., "bytes": [...]. The caller closes the object.
void open_chat_entry(std::string& out, const TokenNames& names, const TokenLogprob& entry) {
  const std::string_view bytes = names.tokenizer.token_bytes(entry.token);
  out += R"({"token":)";
  append_json_string(out, names.name(entry.token));
  out += R"(,"logprob":)";
  append_json_float(out, entry.logprob);
  out += R"(,"bytes":[)";
  for (std::size_t i = 0; i < bytes.size(); ++i)
    append_format(out, "{}{}", i == 0 ? "" : ",", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  out += ']';
}

}  // namespace

std::string TokenNames::text(TokenId token) const {
  return repair_utf8(tokenizer.token_bytes(token));
}

std::string TokenNames::name(TokenId token) const {
  return by_id ? fmt::format("token_id:{}", token) : text(token);
}

void append_token_logprobs(std::string& out, const TokenNames& names, const std::vector<PositionLogprobs>& positions) {
  out += '[';
  bool first = true;
  for (const PositionLogprobs& position : positions) {
    const auto& entries = position.entries;
    if (entries.empty()) continue;
    if (!std::exchange(first, false)) out += ',';
    open_chat_entry(out, names, entries.front());
    out += R"(,"top_logprobs":[)";
    for (std::size_t k = 1; k < entries.size(); ++k) {
      if (k > 1) out += ',';
      open_chat_entry(out, names, entries[k]);
      out += '}';
    }
    out += "]}";
  }
  out += ']';
}

}  // namespace quire
