#pragma once
// Stores the tokens of a model as bytes, and finds the tokens that plain text can become. Immutable after create().
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/byte_alphabet.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"

namespace quire {

// U+2581, which replaces a space in SentencePiece vocabularies.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

class Vocabulary {
 public:
  using TokenType = TokenizerSpec::TokenType;

  // Error `corrupt`: a list does not have one entry per token, or an id is not in the vocabulary.
  static Result<Vocabulary> create(const TokenizerSpec& spec);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(types_.size()); }
  [[nodiscard]] bool contains(TokenId token) const { return token >= 0 && static_cast<std::size_t>(token) < types_.size(); }
  [[nodiscard]] std::string_view bytes(TokenId token) const;
  [[nodiscard]] TokenType type(TokenId token) const { return types_[static_cast<std::size_t>(token)]; }

  // Returns the token that these bytes of plain text can become. Never returns a control, unknown or byte token.
  [[nodiscard]] std::optional<TokenId> find_piece(std::string_view bytes) const;
  // Returns the control, unknown or user-defined token with this text.
  [[nodiscard]] std::optional<TokenId> find_added(std::string_view text) const;
  // Returns SentencePiece's token <0xNN> for this byte.
  [[nodiscard]] std::optional<TokenId> byte_token(unsigned char byte) const;
  // Returns the length in bytes of the longest token, including added tokens.
  [[nodiscard]] std::size_t max_token_bytes() const { return max_token_bytes_; }

 private:
  Vocabulary() = default;
  // Appends a token's bytes to the arena.
  void add(TokenId token, std::string_view text, bool byte_level);
  // Builds the look-up tables; called after all tokens were added. The keys are views into the arena.
  void index(bool byte_level);

  std::vector<TokenType> types_;
  std::vector<char> arena_;  // not a string, because moving a short string moves its bytes
  // Token t is arena_[offsets_[t] .. offsets_[t + 1]).
  std::vector<std::uint32_t> offsets_{0};
  std::unordered_map<std::string_view, TokenId> pieces_, added_;  // views into arena_
  std::array<TokenId, 256> byte_tokens_{};
  std::size_t max_piece_bytes_ = 0, max_token_bytes_ = 0;
};

// Converts a text in the alphabet of base/byte_alphabet.h to bytes. Returns nullopt if a character is not in the alphabet.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view text);

// Replaces each U+2581, SentencePiece's symbol for a space, by a space.
[[nodiscard]] std::string with_plain_spaces(std::string_view text);
[[nodiscard]] std::string with_marked_spaces(std::string_view text);

}  // namespace quire
