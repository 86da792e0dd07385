// Splits template text into tokens, in one pass. Called by the parser once per template. White space around tags follows trim_blocks and
// lstrip_blocks exactly as in jinja2's lexer, because the white space becomes part of prompts. The length of the source is limited
// (ChatTemplate::kMaxSourceBytes).
#include "text/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "text/template/failure.h"
#include "text/template/literal.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_root();
    add(TokenType::eof, {});
    return std::move(tokens_);
  }

 private:
  void add(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text), Value()}); }

  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(position_); }

  // Moves the position by `bytes` and counts lines.
  void advance(std::size_t bytes) {
    if (bytes == 0) return;
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    position_ += bytes;
    line_starting_ = source_[position_ - 1] == '\n';
  }

  [[nodiscard]] static std::size_t leading_space(std::string_view text) { return text.size() - strip_left(text).size(); }

  // Returns the offset of the first tag at or after `from`, or npos.
  [[nodiscard]] std::size_t find_tag(std::size_t from) const {
    for (std::size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#')) return at;
    return std::string::npos;
  }

  [[nodiscard]] char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // Returns the text before a tag, stripped according to the tag's sign and lstrip_blocks.
  [[nodiscard]] std::string_view text_before(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || variable) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    const bool at_line_start = line_start > 0 || line_starting_;
    if (at_line_start && strip_left(text.substr(line_start)).empty()) return text.substr(0, line_start);
    return text;
  }

  void emit_data(std::string_view text) {
    if (!text.empty()) add(TokenType::data, std::string(text));
  }

  void lex_root() {
    const std::size_t tag = find_tag(position_);
    if (tag == std::string::npos) {
      emit_data(rest());
      advance(source_.size() - position_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    emit_data(text_before(rest().substr(0, tag - position_), sign, kind == '{'));
    advance(tag - position_);
    if (kind == '%' && lex_raw()) return;
    if (kind == '#') return lex_comment(sign);
    add(kind == '%' ? TokenType::block_begin : TokenType::variable_begin, {});
    advance(sign == '\0' ? 2 : 3);
    lex_tag(kind == '%');
  }

  // Returns the length of the closing delimiter at `at`, including the white space that it strips, or 0 if no closing delimiter is there.
  // `letter` is '%', '}' or '#'.
  [[nodiscard]] std::size_t closing(std::size_t at, char letter) const {
    const std::string_view text = std::string_view(source_).substr(at);
    const char mark[2] = {letter, '}'};
    const std::string_view end(mark, 2);
    if (text.starts_with('-') && text.substr(1).starts_with(end)) return 3 + leading_space(text.substr(3));
    if (letter == '}') return text.starts_with(end) ? 2 : 0;
    if (text.starts_with('+') && text.substr(1).starts_with(end)) return 3;
    if (!text.starts_with(end)) return 0;
    return text.substr(2).starts_with('\n') ? 3 : 2;
  }

  void lex_comment(char sign) {
    for (std::size_t at = position_ + (sign == '\0' ? 2 : 3); at < source_.size(); ++at) {
      const std::size_t end = source_[at] == '#' || source_[at] == '-' || source_[at] == '+' ? closing(at, '#') : 0;
      if (end > 0) return advance(at + end - position_);
    }
    stop(ErrorCode::invalid_argument, line_, "the comment has no end '#}'");
  }

  // If the tag at `at` starts with `word` ("raw" or "endraw"), returns the offset after the word and the white space that follows.
  // Otherwise returns nullopt.
  [[nodiscard]] std::optional<std::size_t> tag_word(std::size_t at, std::string_view word) const {
    std::size_t next = at + 2 + (sign_at(at + 2) == '\0' ? 0 : 1);
    if (next > source_.size()) return std::nullopt;
    next += leading_space(std::string_view(source_).substr(next));
    if (!std::string_view(source_).substr(next).starts_with(word)) return std::nullopt;
    next += word.size();
    return next + leading_space(std::string_view(source_).substr(next));
  }

  bool lex_raw() {
    const auto word_end = tag_word(position_, "raw");
    if (!word_end) return false;
    const std::string_view head = std::string_view(source_).substr(*word_end);
    std::size_t start = 0;
    if (head.starts_with("-%}"))
      start = *word_end + 3 + leading_space(head.substr(3));
    else if (head.starts_with("%}"))
      start = *word_end + 2;
    else
      return false;
    advance(start - position_);
    for (std::size_t at = source_.find("{%", start); at != std::string::npos; at = source_.find("{%", at + 1)) {
      const auto end_word = tag_word(at, "endraw");
      if (!end_word) continue;
      const std::size_t end = closing(*end_word, '%');
      if (end == 0) continue;
      emit_data(text_before(rest().substr(0, at - position_), sign_at(at + 2), false));
      advance(*end_word + end - position_);
      return true;
    }
    stop(ErrorCode::invalid_argument, line_, "'raw' has no 'endraw'");
  }

  void lex_tag(bool block) {
    std::string open;  // closing brackets that are still expected
    const int first_line = line_;
    while (position_ < source_.size()) {
      if (open.empty()) {
        if (const std::size_t end = closing(position_, block ? '%' : '}')) {
          add(block ? TokenType::block_end : TokenType::variable_end, {});
          return advance(end);
        }
      }
      if (const std::size_t space = leading_space(rest())) {
        advance(space);
        continue;
      }
      lex_token(open);
    }
    stop(ErrorCode::invalid_argument, first_line, block ? "the tag has no end '%}'" : "the expression has no end '}}'");
  }

  void lex_token(std::string& open) {
    const char c = source_[position_];
    if (is_name_start(c)) return lex_name();
    if (is_digit(c)) return lex_number();
    if (c == '\'' || c == '"') return lex_string(c);
    lex_operator(open);
  }

  void lex_name() {
    std::size_t end = position_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenType::name, source_.substr(position_, end - position_));
    advance(end - position_);
  }

  void lex_number() {
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    const NumberLiteral literal = read_number(rest(), !after_dot);
    if (literal.bytes == 0) stop(ErrorCode::unsupported, line_, "the number is too large");
    add(literal.value.is<double>() ? TokenType::real : TokenType::integer, std::string(rest().substr(0, literal.bytes)));
    tokens_.back().number = literal.value;
    advance(literal.bytes);
  }

  void lex_string(char quote) {
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) stop(ErrorCode::invalid_argument, line_, "the string has no end");
    add(TokenType::text, unescape(rest().substr(1, end - position_ - 1), line_));
    advance(end + 1 - position_);
  }

  void lex_operator(std::string& open) {
    const auto op = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view o) { return rest().starts_with(o); });
    if (op == kOperators.end()) {
      std::size_t next = position_;
      next_code_point(source_, next);
      stop(ErrorCode::invalid_argument, line_, fmt::format("unexpected character '{}'", source_.substr(position_, next - position_)));
    }
    balance((*op)[0], open);
    add(TokenType::op, std::string(*op));
    advance(op->size());
  }

  void balance(char c, std::string& open) const {
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty() || open.back() != c) stop(ErrorCode::invalid_argument, line_, fmt::format("unexpected '{}'", c));
    open.pop_back();
  }

  std::string source_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

// Replaces "\r\n" and "\r" by "\n", and removes one newline at the end of the source.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalize(source)).run();
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::data:
      return "template text";
    case TokenType::block_begin:
      return "begin of statement block";
    case TokenType::block_end:
      return "end of statement block";
    case TokenType::variable_begin:
      return "begin of print statement";
    case TokenType::variable_end:
      return "end of print statement";
    case TokenType::eof:
      return "end of template";
    case TokenType::text:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace quire::jinja
