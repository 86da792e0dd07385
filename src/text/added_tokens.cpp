#include "text/added_tokens.h"

#include <algorithm>

namespace quire {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

AddedTokens::AddedTokens(const Vocabulary& vocabulary) {
  using TokenType = TokenizerSpec::TokenType;
  for (TokenId token = 0; vocabulary.contains(token); ++token) {
    const TokenType type = vocabulary.type(token);
    const bool special = type == TokenType::control || type == TokenType::unknown;
    const std::string_view text = vocabulary.bytes(token);
    if ((special || type == TokenType::user_defined) && !text.empty()) entries_.push_back({text, token, special});
  }
  std::ranges::sort(entries_, [](const Entry& a, const Entry& b) { return a.text != b.text ? a.text < b.text : a.token < b.token; });
  for (const Entry& entry : entries_) ++first_byte_[byte_at(entry.text, 0) + 1U];
  for (std::size_t i = 1; i < first_byte_.size(); ++i) first_byte_[i] += first_byte_[i - 1];
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from, bool parse_special) const {
  if (entries_.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    const unsigned char byte = byte_at(text, at);
    if (first_byte_[byte] == first_byte_[byte + 1U]) continue;
    if (const auto match = match_at(text, at, parse_special)) return match;
  }
  return std::nullopt;
}

// Narrows the sorted entries byte by byte.
std::optional<AddedTokens::Match> AddedTokens::match_at(std::string_view text, std::size_t at, bool parse_special) const {
  auto first = entries_.begin() + first_byte_[byte_at(text, at)];
  auto last = entries_.begin() + first_byte_[byte_at(text, at) + 1U];
  std::optional<Match> best;
  for (std::size_t depth = 1; first != last; ++depth) {
    for (; first != last && first->text.size() == depth; ++first) {
      const bool shorter = !best || best->end < at + depth;
      if (shorter && (parse_special || !first->special)) best = Match{at, at + depth, first->token};
    }
    if (at + depth >= text.size()) break;
    const unsigned char byte = byte_at(text, at + depth);
    const auto before = [&](const Entry& entry) { return byte_at(entry.text, depth) < byte; };
    const auto not_after = [&](const Entry& entry) { return byte_at(entry.text, depth) <= byte; };
    first = std::partition_point(first, last, before);
    last = std::partition_point(first, last, not_after);
  }
  return best;
}

}  // namespace quire
