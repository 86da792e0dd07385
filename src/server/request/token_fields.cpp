#include "server/request/token_fields.h"

#include <fmt/format.h>

namespace quire {

namespace json = boost::json;

std::optional<TokenId> token_of(const json::value& value, std::uint32_t vocab_size) {
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= static_cast<std::int64_t>(vocab_size)) return std::nullopt;
  return static_cast<TokenId>(value.get_int64());
}

std::vector<TokenId> read_tokens(ObjectReader& reader, std::string_view name, const json::value& value, std::uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  if (!value.is_array()) {
    reader.reject(name, "must be an array of token ids, not " + describe(value));
    return tokens;
  }
  tokens.reserve(value.get_array().size());
  for (const json::value& item : value.get_array()) {
    const auto token = token_of(item, vocab_size);
    if (!token) {
      reader.reject(name, "contains " + describe(item), fmt::format("use integers from 0 to {}", std::int64_t{vocab_size} - 1));
      break;
    }
    tokens.push_back(*token);
  }
  return tokens;
}

}  // namespace quire
