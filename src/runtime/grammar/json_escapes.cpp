#include "runtime/grammar/json_escapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

namespace quire {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};

// Characters that JSON can write as a backslash and one letter.
constexpr std::array<std::pair<char32_t, std::string_view>, 8> kShort{
    {{'"', "\""}, {'\\', R"(\\)"}, {'/', R"(\/)"}, {0x08, "b"}, {0x0C, "f"}, {0x0A, "n"}, {0x0D, "r"}, {0x09, "t"}}};

CodePoints intersect(const CodePoints& set, CodePointRange with) {
  CodePoints both;
  for (const auto [first, last] : set)
    if (first <= with.last && with.first <= last) both.push_back({std::max(first, with.first), std::min(last, with.last)});
  return both;
}

bool contains(const CodePoints& set, char32_t c) {
  return std::ranges::any_of(set, [c](CodePointRange range) { return range.first <= c && c <= range.last; });
}

// Returns an expression for hexadecimal digits from `first` to `last`, in upper or lower case.
std::string hex_digits(unsigned first, unsigned last) {
  std::string all;
  for (unsigned digit = first; digit <= last; ++digit) all += digit < 10 ? fmt::format("{}", digit) : fmt::format("{0:x}{0:X}", digit);
  return all.size() == 1 ? all : "[" + all + "]";
}

// Returns an expression for numbers from `first` to `last` with `num_digits` hexadecimal digits.
std::string hex_range(std::uint32_t first, std::uint32_t last, int num_digits) {
  if (num_digits == 0) return {};
  const std::uint32_t unit = 1U << (4 * (num_digits - 1));
  const std::uint32_t low = first / unit, high = last / unit;
  const auto any = [](int count) { return count == 0 ? std::string() : fmt::format("[0-9a-fA-F]{{{}}}", count); };
  if (low == high) return hex_digits(low, low) + hex_range(first % unit, last % unit, num_digits - 1);
  std::string all;
  const auto add = [&](std::string_view part) { all += (all.empty() ? "" : "|") + std::string(part); };
  std::uint32_t from = low, to = high;
  if (first % unit != 0) {
    add(hex_digits(low, low) + hex_range(first % unit, unit - 1, num_digits - 1));
    ++from;
  }
  if (last % unit != unit - 1) --to;
  if (from <= to) add(hex_digits(from, to) + any(num_digits - 1));
  if (to != high) add(hex_digits(high, high) + hex_range(0, last % unit, num_digits - 1));
  return "(?:" + all + ")";
}

// Returns an expression for the surrogate pairs of the characters `first` to `last`, which are above U+FFFF.
std::string pair_range(char32_t first, char32_t last) {
  const std::uint32_t from = first - 0x10000, to = last - 0x10000;
  const auto one = [](std::uint32_t high_first, std::uint32_t high_last, std::uint32_t low_first, std::uint32_t low_last) {
    return R"(\\u)" + hex_range(0xD800 + high_first, 0xD800 + high_last, 4) + R"(\\u)" +
           hex_range(0xDC00 + low_first, 0xDC00 + low_last, 4);
  };
  std::uint32_t high = from >> 10, high_end = to >> 10;
  if (high == high_end) return one(high, high, from & 0x3FF, to & 0x3FF);
  std::string all;
  if ((from & 0x3FF) != 0) {
    all += one(high, high, from & 0x3FF, 0x3FF) + "|";
    ++high;
  }
  if ((to & 0x3FF) != 0x3FF) all += one(high_end, high_end, 0, to & 0x3FF) + "|", --high_end;
  if (high <= high_end) return all + one(high, high_end, 0, 0x3FF);
  all.pop_back();
  return all;
}

bool is_letter_or_digit(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Returns whether all JSON writers leave the character unescaped. Some writers escape more than JSON requires: non-ASCII characters,
// control characters, and special characters of HTML or scripts.
bool is_written_as_itself(char32_t c) {
  return c >= ' ' && c < 0x7F && !std::u32string_view(U"\"\\/<>&'+`").contains(c);
}

// Returns the expression for an unescaped character.
std::string raw_character(char32_t c) {
  return is_letter_or_digit(c) ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(c));
}

std::string class_of(const CodePoints& set) {
  if (set.size() == 1 && set.front().first == set.front().last) return raw_character(set.front().first);
  std::string all;
  for (const auto [first, last] : set) {
    all += fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(first));
    if (first != last) all += fmt::format("-\\x{{{:X}}}", static_cast<std::uint32_t>(last));
  }
  return "[" + all + "]";
}

// Removes the next character from a UTF-8 text and returns it.
char32_t next_character(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned head = byte(0);
  const std::size_t size = head < 0x80 ? 1 : head < 0xE0 ? 2 : head < 0xF0 ? 3 : 4;
  char32_t c = size == 1 ? head : head & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) c = c << 6 | (byte(i) & 0x3FU);
  text.remove_prefix(std::min(size, text.size()));
  return c;
}

}  // namespace

CodePoints code_points(std::vector<CodePointRange> ranges) {
  std::ranges::sort(ranges, {}, &CodePointRange::first);
  CodePoints joined;
  for (const auto [first, last] : ranges)
    if (!joined.empty() && first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, last);
    else
      joined.push_back({first, last});
  CodePoints set = intersect(joined, {0, kSurrogates.first - 1});
  std::ranges::copy(intersect(joined, {kSurrogates.last + 1, kLastCodePoint}), std::back_inserter(set));
  return set;
}

CodePoints complement(const CodePoints& set) {
  std::vector<CodePointRange> others;
  char32_t next = 0;
  for (const auto [first, last] : set) {
    if (first > next) others.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLastCodePoint) others.push_back({next, kLastCodePoint});
  return code_points(std::move(others));
}

std::string regex_of(const CodePoints& set) {
  std::string all;
  const auto add = [&](std::string_view part) { all += (all.empty() ? "" : "|") + std::string(part); };
  CodePoints raw;
  for (const CodePointRange part : {CodePointRange{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kLastCodePoint}})
    std::ranges::copy(intersect(set, part), std::back_inserter(raw));
  if (!raw.empty()) add(class_of(raw));
  std::string letters;
  for (const auto& [c, letter] : kShort)
    if (contains(set, c)) letters += letter;
  if (!letters.empty()) add(R"(\\[)" + letters + "]");
  for (const auto [first, last] : intersect(set, {0, 0xFFFF})) add(R"(\\u)" + hex_range(first, last, 4));
  for (const auto [first, last] : intersect(set, {0x10000, kLastCodePoint})) add(pair_range(first, last));
  return "(?:" + all + ")";
}

std::string regex_of(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const char32_t c = next_character(text);
    all += is_written_as_itself(c) ? raw_character(c) : regex_of(code_points({{c, c}}));
  }
  return all;
}

std::string shortest_regex(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const char32_t c = next_character(text);
    const auto found = std::ranges::find(kShort, c, &std::pair<char32_t, std::string_view>::first);
    if (c != '/' && found != kShort.end())
      all += R"(\\)" + std::string(found->second);
    else
      all += c < 0x20 ? fmt::format(R"(\\u{})", hex_range(c, c, 4)) : raw_character(c);
  }
  return all;
}

const std::string& any_name_regex() {
  static const std::string any = [] {
    std::vector<CodePointRange> written;
    for (char32_t c = ' '; c < 0x7F; ++c)
      if (is_written_as_itself(c)) written.push_back({c, c});
    const CodePoints set = code_points(std::move(written));
    return fmt::format("(?:{}|{})", class_of(set), regex_of(complement(set)));
  }();
  return any;
}

const std::string& any_character_regex() {
  static const std::string any = regex_of(complement({}));
  return any;
}

}  // namespace quire
