// Finds added tokens in a text: by first byte, then narrowed among sorted entries. Called by the tokenizer for each text before anything
// else looks at it; any thread, several at once. Linear in the text for tokens of bounded length, whatever the text is.
#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "text/utf8.h"

namespace quire {
namespace {

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// \w of Unicode: letters, marks, decimal digits, connectors, joiners.
bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC;
}

char32_t character_at(std::string_view text, std::size_t at) {
  return next_code_point(text, at);
}

std::size_t skip_white_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_white_space(character_at(text, at))) at += utf8_char_length(text, at);
  return at;
}

std::size_t skip_white_space_back(std::string_view text, std::size_t at, std::size_t limit) {
  while (at > limit && is_white_space(character_at(text, previous_character(text, at)))) at = previous_character(text, at);
  return at;
}

bool between_word_borders(std::string_view text, std::size_t begin, std::size_t end) {
  const bool joined_left = begin > 0 && is_word(character_at(text, previous_character(text, begin)));
  const bool joined_right = end < text.size() && is_word(character_at(text, end));
  return !joined_left && !joined_right;
}

}  // namespace

AddedTokens::AddedTokens(const Vocabulary& vocabulary, std::span<const TokenizerSpec::AddedToken> flagged) {
  using TokenType = TokenizerSpec::TokenType;
  std::unordered_map<TokenId, TokenizerSpec::AddedToken> flags;
  for (const auto& token : flagged) flags.emplace(token.id, token);
  for (TokenId token = 0; vocabulary.contains(token); ++token) {
    const TokenType type = vocabulary.type(token);
    const bool special = type == TokenType::control || type == TokenType::unknown;
    const std::string_view text = vocabulary.bytes(token);
    if ((!special && type != TokenType::user_defined) || text.empty() || !is_valid_utf8(text)) continue;
    Entry entry{text, token, special};
    if (const auto found = flags.find(token); found != flags.end()) {
      entry.strip_left = found->second.strip_left;
      entry.strip_right = found->second.strip_right;
      entry.single_word = found->second.single_word;
    }
    entries_.push_back(entry);
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
    const Entry* entry = longest_at(text, at, parse_special);
    if (entry == nullptr) continue;
    Match match{at, at + entry->text.size(), entry->token};
    if (entry->single_word && !between_word_borders(text, match.begin, match.end)) continue;
    if (entry->strip_left) match.begin = skip_white_space_back(text, match.begin, from);
    if (entry->strip_right) match.end = skip_white_space(text, match.end);
    return match;
  }
  return std::nullopt;
}

// Narrows the sorted entries byte by byte.
const AddedTokens::Entry* AddedTokens::longest_at(std::string_view text, std::size_t at, bool parse_special) const {
  auto first = entries_.begin() + first_byte_[byte_at(text, at)];
  auto last = entries_.begin() + first_byte_[byte_at(text, at) + 1U];
  const Entry* best = nullptr;
  for (std::size_t depth = 1; first != last; ++depth) {
    for (; first != last && first->text.size() == depth; ++first) {
      const bool longer = best == nullptr || best->text.size() < depth;
      if (longer && (parse_special || !first->special)) best = &*first;
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
