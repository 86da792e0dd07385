#pragma once
// Splits template text into tokens, with trim_blocks and lstrip_blocks on and keep_trailing_newline off.
#include <string>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace quire::jinja {

enum class TokenType : std::uint8_t { data, block_begin, block_end, variable_begin, variable_end, name, text, integer, real, op, eof };

struct Token {
  TokenType type = TokenType::eof;
  int line = 1;
  std::string text;  // data, text: the content with escapes resolved; name, op: as written
  Value number;      // for integer and real

  [[nodiscard]] bool is_op(std::string_view op) const { return type == TokenType::op && text == op; }
  [[nodiscard]] bool is_name(std::string_view name) const { return type == TokenType::name && text == name; }
};

// Returns the tokens; the last one is eof. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

// Returns the name of the token for error messages, for example "end of statement block" or "'+'".
std::string describe(const Token& token);

}  // namespace quire::jinja
