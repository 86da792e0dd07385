#pragma once
// Small invented vocabularies.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/model_info.h"
#include "quire/text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire::test {

inline TokenId add_token(TokenizerSpec& spec, std::string text, TokenizerSpec::TokenType type = TokenizerSpec::TokenType::normal,
                         float score = 0.0F) {
  spec.tokens.push_back(std::move(text));
  spec.types.push_back(type);
  spec.scores.push_back(score);
  return static_cast<TokenId>(spec.tokens.size() - 1);
}

// Ids 0 to 255 are the bytes. Then follow the merges, given as plain text, <|end|> (control) and <tool> (user-defined).
inline TokenizerSpec byte_level_spec(const std::vector<std::pair<std::string, std::string>>& merges = {
                                         {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "hello"}, {" ", " "}}) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  spec.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) add_token(spec, to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  for (const auto& [left, right] : merges) {
    add_token(spec, to_byte_alphabet(left + right));
    spec.merges.push_back(to_byte_alphabet(left) + " " + to_byte_alphabet(right));
  }
  spec.scores.clear();
  add_token(spec, "<|end|>", TokenizerSpec::TokenType::control);
  add_token(spec, "<tool>", TokenizerSpec::TokenType::user_defined);
  spec.scores.clear();
  spec.eos = static_cast<TokenId>(spec.tokens.size() - 2);
  return spec;
}

// The vocabulary has <unk>, <s>, </s>, the byte tokens (ids 3 to 258), then pieces with falling scores.
inline TokenizerSpec sentencepiece_spec() {
  using TokenType = TokenizerSpec::TokenType;
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::sentencepiece;
  spec.unk = add_token(spec, "<unk>", TokenType::unknown);
  spec.bos = add_token(spec, "<s>", TokenType::control);
  spec.eos = add_token(spec, "</s>", TokenType::control);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte)
    add_token(spec, std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenType::byte);
  float score = -1.0F;
  for (const char* piece :
       {"\xE2\x96\x81h", "el", "lo", "\xE2\x96\x81hel", "\xE2\x96\x81hello", "\xE2\x96\x81", "h", "e", "l", "o", "s", "<", ">", "<s"}) {
    add_token(spec, piece, TokenType::normal, score);
    score -= 1.0F;
  }
  spec.add_space_prefix = true;
  spec.add_bos = true;
  return spec;
}

// Stops the test when the specification is refused.
inline std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerSpec& spec) {
  auto tokenizer = Tokenizer::create(spec);
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

}  // namespace quire::test
