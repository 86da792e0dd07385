// Translates "root ::= ..." (GBNF of llama.cpp, EBNF of XGrammar) into llguidance's Lark. Keeps the order of the rules; names, strings,
// classes and repetitions are rewritten. Runs where the body is read, on the server's thread or in the job pool. The text comes from a
// client: reading takes linear time, the depth of nested brackets (recursion) is limited, and text that has another meaning in Lark is
// renamed or escaped.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "server/request/structured_output.h"

namespace quire {
namespace {

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

class EbnfReader {
 public:
  explicit EbnfReader(std::string_view text) : rest_(text) {}

  Result<std::string> read() {
    while (skip(true), !rest_.empty() && !problem_) read_rule();
    if (!problem_ && !has_root_) problem_ = "the rule root is missing";
    if (problem_) return fail(ErrorCode::invalid_argument, "grammar", fmt::format("line {}: {}", line_, *problem_), "fix the grammar");
    return std::move(out_);
  }

 private:
  void stop(std::string problem) {
    if (!problem_) problem_ = std::move(problem);
    rest_ = {};
  }

  // Skips blanks and comments. With `lines`, also skips line ends.
  void skip(bool lines) {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
        line_ += c == '\n' ? 1 : 0;
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }

  std::string take_name() {
    const std::size_t size = static_cast<std::size_t>(std::ranges::find_if_not(rest_, is_name) - rest_.begin());
    std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    // Names must be rewritten because in Lark a lower-case name is a rule and an upper-case name is a terminal.
    if (name == "root") return "start";
    std::string lark = "r_";
    for (const char c : name)
      if (std::isupper(static_cast<unsigned char>(c)) != 0)
        lark += {'_', 'u', static_cast<char>(std::tolower(static_cast<unsigned char>(c)))};
      else
        lark += c == '-' ? "_m" : c == '.' ? "_d" : c == '_' ? "__" : std::string(1, c);
    return lark;
  }

  void read_rule() {
    if (!is_name(rest_.front())) return stop("a rule must begin with its name");
    const std::string name = take_name();
    has_root_ |= name == "start";
    skip(true);
    if (!rest_.starts_with("::=")) return stop("the name of a rule must be followed by ::=");
    rest_.remove_prefix(3);
    out_ += name + ":";
    read_alternatives(0);
    out_ += '\n';
  }

  // Returns whether the name at the current position begins a rule, that is, "::=" follows it.
  bool is_at_rule() {
    const std::string_view saved = rest_;
    const std::size_t line = line_;
    rest_.remove_prefix(static_cast<std::size_t>(std::ranges::find_if_not(rest_, is_name) - rest_.begin()));
    skip(true);
    const bool found = rest_.starts_with("::=");
    rest_ = saved;
    line_ = line;
    return found;
  }

  void read_alternatives(std::size_t depth) {
    if (depth > 100) return stop("brackets are nested more than 100 levels deep");
    bool is_empty = true;
    while (!problem_) {
      skip(true);
      if (rest_.empty() || rest_.front() == ')' || (is_name(rest_.front()) && is_at_rule())) break;
      if (rest_.front() == '|') {
        out_ += is_empty ? " \"\" |" : " |";
        is_empty = true;
        rest_.remove_prefix(1);
        continue;
      }
      is_empty = false;
      out_ += ' ';
      read_item(depth);
    }
    if (is_empty) out_ += " \"\"";
  }

  void read_item(std::size_t depth) {
    const char c = rest_.front();
    if (c == '"')
      read_string();
    else if (c == '[')
      read_class();
    else if (c == '(')
      read_group(depth);
    else if (c == '.')
      out_ += "/(.|\\n)/", rest_.remove_prefix(1);
    else if (is_name(c))
      out_ += take_name();
    else
      return stop(fmt::format("unexpected character {:?}", std::string_view(&c, 1)));
    read_repeats();
  }

  void read_group(std::size_t depth) {
    rest_.remove_prefix(1);
    out_ += '(';
    read_alternatives(depth + 1);
    if (problem_) return;
    if (!rest_.starts_with(')')) return stop("a bracket is not closed");
    rest_.remove_prefix(1);
    out_ += ')';
  }

  // Reads a string with C escapes and writes it with JSON escapes, which Lark uses.
  void read_string() {
    out_ += '"';
    rest_.remove_prefix(1);
    while (!rest_.empty() && rest_.front() != '"' && rest_.front() != '\n') {
      if (rest_.front() != '\\' || rest_.size() < 2) {
        out_ += rest_.front();
        rest_.remove_prefix(1);
        continue;
      }
      const char kind = rest_[1];
      rest_.remove_prefix(2);
      if (kind == 'x')
        take_hex(2, "\\u00");
      else if (kind == 'u')
        take_hex(4, "\\u");
      else if (kind == '\'')
        out_ += '\'';
      else if (std::string_view("\"\\/bfnrt").contains(kind))
        out_ += {'\\', kind};
      else
        return stop(fmt::format("a string contains the unknown escape \\{}", kind));
    }
    if (!rest_.starts_with('"')) return stop("a string is not closed");
    rest_.remove_prefix(1);
    out_ += '"';
  }

  void take_hex(std::size_t digits, std::string_view before) {
    const std::string_view hex = rest_.substr(0, digits);
    if (hex.size() < digits || !std::ranges::all_of(hex, [](unsigned char d) { return std::isxdigit(d) != 0; }))
      return stop("an escape has too few hexadecimal digits");
    out_ += before;
    out_ += hex;
    rest_.remove_prefix(digits);
  }

  // Copies a character class. Escapes the characters that are special in a class of a Lark regular expression but not in a class of EBNF.
  void read_class() {
    out_ += "/[";
    rest_.remove_prefix(1);
    if (rest_.starts_with('^')) out_ += '^', rest_.remove_prefix(1);
    while (!rest_.empty() && rest_.front() != ']' && rest_.front() != '\n') {
      const char c = rest_.front();
      if (c == '\\' && rest_.size() > 1) {
        const char kind = rest_[1];
        rest_.remove_prefix(2);
        if (kind == 'u' || kind == 'x')
          take_hex(kind == 'u' ? 4 : 2, kind == 'u' ? "\\u" : "\\x");
        else
          out_ += {'\\', kind};
        continue;
      }
      if (c == '/' || c == '[' || c == '&' || c == '~') out_ += '\\';
      out_ += c;
      rest_.remove_prefix(1);
    }
    if (!rest_.starts_with(']')) return stop("a character class is not closed");
    rest_.remove_prefix(1);
    out_ += "]/";
  }

  void read_repeats() {
    while (!problem_ && !rest_.empty()) {
      if (std::string_view("*+?").contains(rest_.front())) {
        out_ += rest_.front();
        rest_.remove_prefix(1);
      } else if (rest_.front() == '{') {
        const std::size_t end = rest_.find('}');
        if (end == std::string_view::npos || rest_.substr(1, end - 1).find_first_not_of("0123456789, ") != std::string_view::npos)
          return stop("a repetition must be {n}, {n,} or {n,m}");
        out_ += rest_.substr(0, end + 1);
        rest_.remove_prefix(end + 1);
      } else {
        return;
      }
    }
  }

  std::string_view rest_;
  std::size_t line_ = 1;
  std::string out_;
  bool has_root_ = false;
  std::optional<std::string> problem_;
};

}  // namespace

Result<std::string> lark_of_ebnf(std::string_view text) {
  return EbnfReader(text).read();
}

}  // namespace quire
