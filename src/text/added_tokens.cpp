// Finds added tokens in a text: the first byte selects a range of the sorted entries, and each further byte narrows this range. Called by
// the tokenizer for each text before any other encoding step. Thread-safe. The cost is linear in the text if the length of the tokens is
// bounded.
#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <tuple>
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

// Returns whether Unicode's \w matches `c`: letters, marks, decimal digits, connectors and joiners.
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

AddedTokens::AddedTokens(const TokenizerSpec& spec, const Vocabulary& vocabulary, const Normalize& normalize) {
  using TokenType = TokenizerSpec::TokenType;
  std::unordered_map<TokenId, TokenizerSpec::AddedToken> flags;
  for (const auto& token : spec.added_tokens) flags.emplace(token.id, token);
  for (TokenId token = 0; vocabulary.contains(token); ++token) {
    const TokenType type = vocabulary.type(token);
    const bool special = type == TokenType::control || type == TokenType::unknown;
    if (!special && type != TokenType::user_defined) continue;
    Entry entry{{}, token, special};
    bool is_normalized = false;
    if (const auto found = flags.find(token); found != flags.end()) {
      entry.strip_left = found->second.strip_left;
      entry.strip_right = found->second.strip_right;
      entry.single_word = found->second.single_word;
      is_normalized = found->second.normalized;
    }
    std::string text(spec.added_tokens_verbatim ? std::string_view(spec.tokens[static_cast<std::size_t>(token)]) : vocabulary.bytes(token));
    if (text.empty() || !is_valid_utf8(text)) continue;
    entry.text = texts_.emplace_back(is_normalized ? normalize(text) : std::move(text));
    (is_normalized ? normalized_ : as_written_).entries.push_back(entry);
  }
  as_written_.sort();
  normalized_.sort();
}

void AddedTokens::Table::sort() {
  // If two tokens have the same normalized text, the special token must match.
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tuple(a.text, !a.special, a.token) < std::tuple(b.text, !b.special, b.token);
  });
  for (const Entry& entry : entries) ++first_byte[byte_at(entry.text, 0) + 1U];
  for (std::size_t i = 1; i < first_byte.size(); ++i) first_byte[i] += first_byte[i - 1];
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from, bool parse_special, TextForm form) const {
  const Table& table = form == TextForm::normalized ? normalized_ : as_written_;
  if (table.entries.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    const unsigned char byte = byte_at(text, at);
    if (table.first_byte[byte] == table.first_byte[byte + 1U]) continue;
    const Entry* entry = table.longest_at(text, at, parse_special);
    if (entry == nullptr) continue;
    Match match{at, at + entry->text.size(), entry->token};
    if (entry->single_word && !between_word_borders(text, match.begin, match.end)) {
      at = match.end - 1;  // continues after the token, as Hugging Face tokenizers do
      continue;
    }
    if (entry->strip_left) match.begin = skip_white_space_back(text, match.begin, from);
    if (entry->strip_right) match.end = skip_white_space(text, match.end);
    return match;
  }
  return std::nullopt;
}

// Narrows the range of sorted entries byte by byte. In each range, a complete entry comes before longer ones.
const AddedTokens::Entry* AddedTokens::Table::longest_at(std::string_view text, std::size_t at, bool parse_special) const {
  auto first = entries.begin() + first_byte[byte_at(text, at)];
  auto last = entries.begin() + first_byte[byte_at(text, at) + 1U];
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
