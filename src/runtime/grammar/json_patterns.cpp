// Parses a regular expression and writes it again, with all JSON spellings of each character and class. A JSON spelling is the character
// itself or one of its escapes (json_escapes.h). The functions are pure. Patterns come from clients: groups may be nested `kMaxGroups`
// deep, and the size of the whole grammar is limited (kMaxRuleBytes in schema_compiler.cpp, kMaxGrammarBytes in llguidance.cpp).
#include "runtime/grammar/json_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/grammar/json_escapes.h"

namespace quire {
namespace {

constexpr int kMaxGroups = 50;

CodePoints digit_points() {
  return code_points({{'0', '9'}});
}
CodePoints word_points() {
  return code_points({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}
CodePoints space_points() {
  return code_points({{0x09, 0x0D},
                      {' ', ' '},
                      {0x85, 0x85},
                      {0xA0, 0xA0},
                      {0x1680, 0x1680},
                      {0x2000, 0x200A},
                      {0x2028, 0x2029},
                      {0x202F, 0x202F},
                      {0x205F, 0x205F},
                      {0x3000, 0x3000}});
}

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : rest_(pattern) {}

  Result<std::optional<std::string>> read() {
    std::string all = alternatives(0, true);
    if (problem_.empty() && !beyond_ && !rest_.empty()) problem_ = "has an unmatched )";
    if (!problem_.empty()) return fail(ErrorCode::invalid_argument, "pattern", problem_, "fix the pattern");
    if (beyond_) return std::optional<std::string>();
    return std::optional(std::move(all));
  }

 private:
  [[nodiscard]] bool is_done() const { return beyond_ || !problem_.empty(); }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  char32_t take_character() {
    const auto head = static_cast<unsigned char>(rest_.front());
    const std::size_t size = std::min<std::size_t>(head < 0x80 ? 1 : head < 0xE0 ? 2 : head < 0xF0 ? 3 : 4, rest_.size());
    char32_t c = size == 1 ? head : head & (0xFFU >> (size + 1));
    for (std::size_t i = 1; i < size; ++i) c = c << 6 | (static_cast<unsigned char>(rest_[i]) & 0x3FU);
    rest_.remove_prefix(size);
    return c;
  }

  // Reads alternatives up to the end of the pattern or the ) of a group, which stays in `rest_`. With `is_whole`, an alternative without
  // anchors may match anywhere.
  std::string alternatives(int depth, bool is_whole) {
    std::string all;
    do {
      all += all.empty() ? "(?:" : "|";
      const bool begins = is_whole && take("^");
      bool ends = false;
      std::string one = sequence(depth, is_whole, ends);
      const std::string anything = is_whole ? "(?:" + any_character_regex() + ")*" : "";
      all += (begins ? "" : anything) + one + (ends ? "" : anything);
    } while (!is_done() && take("|"));
    return all + ")";
  }
  std::string sequence(int depth, bool is_whole, bool& ends) {
    std::string all;
    while (!is_done() && !rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      if (is_whole && rest_.front() == '$' && (rest_.size() == 1 || rest_[1] == '|')) {
        ends = take("$");
        break;
      }
      std::string one = atom(depth);
      if (!is_done()) all += quantified(std::move(one));
    }
    return all;
  }
  std::string atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return regex_of(character_class());
    if (take(".")) return regex_of(complement(code_points({{'\n', '\n'}})));
    if (take("\\")) return escaped();
    const char c = rest_.front();
    // Anchors inside a pattern are not supported.
    if (c == '^' || c == '$') beyond_ = true;
    if (c == '*' || c == '+' || c == '?') problem_ = fmt::format("has a {} with nothing before it", c);
    const char32_t character = take_character();
    return regex_of(code_points({{character, character}}));
  }
  std::string group(int depth) {
    if (take("?=") || take("?!") || take("?<=") || take("?<!")) problem_ = "uses lookahead or lookbehind, which is not supported";
    if (depth == kMaxGroups) problem_ = fmt::format("has groups nested more than {} levels deep", kMaxGroups);
    if (is_done()) return {};
    if (take("?P<") || take("?<"))
      rest_.remove_prefix(std::min(rest_.find('>'), rest_.size() - 1) + 1);
    else if (!take("?:") && rest_.starts_with('?'))
      beyond_ = true;  // flags
    if (is_done()) return {};
    std::string inner = alternatives(depth + 1, false);
    if (!is_done() && !take(")")) problem_ = "has an unmatched (";
    return inner;
  }

  std::string quantified(std::string one) {
    std::string count;
    if (!rest_.empty() && std::string_view("*+?").contains(rest_.front())) {
      count = rest_.front();
      rest_.remove_prefix(1);
    } else if (rest_.starts_with('{')) {
      const std::size_t end = rest_.find('}');
      const std::string_view inner = end == std::string_view::npos ? std::string_view() : rest_.substr(1, end - 1);
      const bool is_count = !inner.empty() && inner.find_first_not_of("0123456789,") == std::string_view::npos && inner.front() != ',' &&
                            inner.find(',') == inner.rfind(',');
      if (!is_count) return one;  // a brace without a count is a plain character
      count = rest_.substr(0, end + 1);
      rest_.remove_prefix(end + 1);
    }
    if (count.empty()) return one;
    (void)take("?");  // a lazy repetition matches the same texts
    if (!rest_.empty() && std::string_view("*+").contains(rest_.front())) beyond_ = true;
    return "(?:" + one + ")" + count;
  }

  // Reads the part of an escape after the backslash: a class, or one character.
  std::optional<CodePoints> class_escape() {
    if (take("d")) return digit_points();
    if (take("D")) return complement(digit_points());
    if (take("w")) return word_points();
    if (take("W")) return complement(word_points());
    if (take("s")) return space_points();
    if (take("S")) return complement(space_points());
    return std::nullopt;
  }
  char32_t character_escape() {
    static constexpr std::array<std::pair<char, char>, 6> kLetters{
        {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'0', '\0'}}};
    if (rest_.empty()) {
      problem_ = "ends with a backslash";
      return 0;
    }
    for (const auto& [letter, character] : kLetters)
      if (rest_.front() == letter && (letter != '0' || rest_.size() == 1 || rest_[1] < '0' || rest_[1] > '9')) {
        rest_.remove_prefix(1);
        return static_cast<char32_t>(character);
      }
    if (rest_.front() == 'x' || rest_.front() == 'u') return hex_escape();
    const char c = rest_.front();
    if (c >= '1' && c <= '9') problem_ = "uses a backreference, which is not supported";
    // \b, \p and others are not characters, or differ between the two syntaxes.
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '0') beyond_ = true;
    return take_character();
  }
  char32_t hex_escape() {
    const std::size_t size = rest_.front() == 'x' ? 2 : 4;
    rest_.remove_prefix(1);
    std::string_view digits = rest_.substr(0, size);
    std::size_t taken = size;
    if (rest_.starts_with('{')) {
      digits = rest_.substr(1, std::min(rest_.find('}'), rest_.size()) - 1);
      taken = digits.size() + 2;
    }
    std::uint32_t value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (failed != std::errc() || end != digits.data() + digits.size() || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      beyond_ = true;
      return 0;
    }
    rest_.remove_prefix(std::min(taken, rest_.size()));
    return value;
  }
  std::string escaped() {
    if (const auto set = class_escape()) return regex_of(*set);
    const char32_t c = character_escape();
    return is_done() ? std::string() : regex_of(code_points({{c, c}}));
  }

  CodePoints character_class() {
    const bool is_negated = take("^");
    std::vector<CodePointRange> ranges;
    bool is_first = true;
    while (!is_done()) {
      if (rest_.empty()) {
        problem_ = "has an unmatched [";
        break;
      }
      if (!is_first && take("]")) break;
      if (is_first && rest_.starts_with(']')) beyond_ = true;  // a character in Rust's syntax, the end of the class in ECMA's
      is_first = false;
      for (const char* const operation : {"&&", "--", "~~", "["})
        if (rest_.starts_with(operation)) beyond_ = true;
      if (!is_done()) add_class_item(ranges);
    }
    const CodePoints set = code_points(std::move(ranges));
    return is_negated ? complement(set) : set;
  }
  void add_class_item(std::vector<CodePointRange>& ranges) {
    if (rest_.starts_with('\\')) {
      const std::string_view before = rest_;
      rest_.remove_prefix(1);
      if (const auto set = class_escape()) {
        ranges.insert(ranges.end(), set->begin(), set->end());
        return;
      }
      rest_ = before;
    }
    const char32_t first = class_character();
    if (is_done()) return;
    if (rest_.size() < 2 || rest_.front() != '-' || rest_[1] == ']') return ranges.push_back({first, first});
    rest_.remove_prefix(1);
    if (rest_.starts_with("\\d") || rest_.starts_with("\\w") || rest_.starts_with("\\s")) beyond_ = true;
    const char32_t last = is_done() ? first : class_character();
    if (last < first) problem_ = "has a character range whose end is before its start";
    ranges.push_back({first, last});
  }
  char32_t class_character() {
    if (!take("\\")) return take_character();
    if (take("b")) return 0x08;
    return character_escape();
  }

  std::string_view rest_;
  bool beyond_ = false;
  std::string problem_;
};

// Formats of RFC 3339, 5321, 1123, 2673, 4291, 3986, 9562 and ISO 8601, as far as a regular expression can check them.
constexpr std::string_view kDate =
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
    "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[zZ]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|23:59:60(?:\\.\\d+)?[zZ])";
constexpr std::string_view kDuration =
    "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))?"
    "|T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
constexpr std::string_view kLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
constexpr std::string_view kAtom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
constexpr std::string_view kPathCharacter = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";

std::string ipv4() {
  return fmt::format("(?:{0}\\.){{3}}{0}", kByte);
}
// Returns an expression for IPv6 addresses: eight groups; :: replaces some of them, and the last two may be an IPv4 address.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}", last = fmt::format("(?:{0}:{0}|{1})", group, ipv4());
  std::string all = fmt::format("(?:(?:{}:){{6}}{}", group, last);
  for (int behind = 5; behind >= 0; --behind) {
    const std::string head = behind == 5 ? "" : fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", group, 4 - behind);
    all += fmt::format("|{}::{}{}", head, behind == 0 ? "" : fmt::format("(?:{}:){{{}}}", group, behind), last);
  }
  all += fmt::format("|(?:(?:{0}:){{0,5}}{0})?::{0}|(?:(?:{0}:){{0,6}}{0})?::)", group);
  return all;
}
std::string uri() {
  const std::string segment = fmt::format("{}*", kPathCharacter), segments = fmt::format("(?:/{})*", segment);
  const std::string host = fmt::format(
      "(?:\\[(?:{}|v[0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\\]|(?:[a-zA-Z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{{2}})*)", ipv6());
  const std::string authority = fmt::format("(?:(?:[a-zA-Z0-9._~!$&'()*+,;=:-]|%[0-9a-fA-F]{{2}})*@)?{}(?::\\d*)?", host);
  const std::string more = fmt::format("(?:{}|[/?])*", kPathCharacter);
  return fmt::format("[a-zA-Z][a-zA-Z0-9+.-]*:(?://{0}{1}|/(?:{2}+{1})?|{2}+{1}|)(?:\\?{3})?(?:#{3})?", authority, segments, kPathCharacter,
                     more);
}

}  // namespace

Result<std::optional<std::string>> pattern_regex(std::string_view pattern) {
  return PatternReader(pattern).read();
}

std::optional<std::string> format_regex(std::string_view format) {
  std::string pattern;
  if (format == "date-time") pattern = fmt::format("{}[tT]{}", kDate, kTime);
  if (format == "date") pattern = kDate;
  if (format == "time") pattern = kTime;
  if (format == "duration") pattern = kDuration;
  if (format == "email") pattern = fmt::format("{0}(?:\\.{0})*@(?:{1}(?:\\.{1})*|\\[{2}\\])", kAtom, kLabel, ipv4());
  if (format == "hostname") pattern = fmt::format("{0}(?:\\.{0})*", kLabel);
  if (format == "ipv4") pattern = ipv4();
  if (format == "ipv6") pattern = ipv6();
  if (format == "uuid") pattern = kUuid;
  if (format == "uri") pattern = uri();
  if (format == "unknown") return "(?:" + any_character_regex() + ")*";
  if (pattern.empty()) return std::nullopt;
  auto spelled = PatternReader("^(?:" + pattern + ")$").read();
  return spelled && *spelled ? **spelled : std::optional<std::string>();
}

}  // namespace quire
