#pragma once
// The tokens of a model as bytes, and which of them plain text may become. Immutable after create.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/model_info.h"

namespace quire {

// U+2581, which stands for a space in SentencePiece vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

class Vocabulary {
 public:
  using TokenType = TokenizerSpec::TokenType;

  // Error `corrupt`: a list whose length is not that of the tokens, an id outside them.
  static Result<Vocabulary> create(const TokenizerSpec& spec);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(types_.size()); }
  [[nodiscard]] bool contains(TokenId token) const { return token >= 0 && static_cast<std::size_t>(token) < types_.size(); }
  [[nodiscard]] std::string_view bytes(TokenId token) const;
  [[nodiscard]] TokenType type(TokenId token) const { return types_[static_cast<std::size_t>(token)]; }

  // The token that these bytes of plain text may become; never a control, unknown or byte token.
  [[nodiscard]] std::optional<TokenId> find_piece(std::string_view bytes) const;
  // A control, unknown or user-defined token by its text.
  [[nodiscard]] std::optional<TokenId> find_added(std::string_view text) const;
  // SentencePiece's token <0xNN>.
  [[nodiscard]] std::optional<TokenId> byte_token(unsigned char byte) const;
  // Of all tokens, added ones too.
  [[nodiscard]] std::size_t max_token_bytes() const { return max_token_bytes_; }

 private:
  Vocabulary() = default;
  // Appends the token's bytes to the arena.
  void add(TokenId token, std::string_view text, bool byte_level);
  // Once all are there: the look-up tables, whose keys are views into the arena.
  void index(bool byte_level);

  std::vector<TokenType> types_;
  std::vector<char> arena_;  // not a string: a short string's bytes move with it
  // Token t is arena_[offsets_[t] .. offsets_[t + 1]).
  std::vector<std::uint32_t> offsets_{0};
  std::unordered_map<std::string_view, TokenId> pieces_, added_;  // views into arena_
  std::array<TokenId, 256> byte_tokens_{};
  std::size_t max_piece_bytes_ = 0, max_token_bytes_ = 0;
};

// GPT-2's alphabet of printable characters for bytes. Nothing for a text with a character outside it.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view text);
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

// U+2581 for a space, as SentencePiece writes it, back to a space.
[[nodiscard]] std::string with_plain_spaces(std::string_view text);

}  // namespace quire
