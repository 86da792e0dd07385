// Checks UTF-8 against Unicode's table 3-7 of well-formed sequences at each of its borders.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace quire {
namespace {

using ByteRange = std::pair<unsigned char, unsigned char>;

// The rows of the table: the range of each byte.
const std::vector<std::vector<ByteRange>>& well_formed_rows() {
  static const std::vector<std::vector<ByteRange>> rows{{{0x00, 0x7F}},
                                                        {{0xC2, 0xDF}, {0x80, 0xBF}},
                                                        {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
                                                        {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
                                                        {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
                                                        {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
                                                        {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
                                                        {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
                                                        {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}};
  return rows;
}

struct TableRead {
  bool is_valid = true;
  std::size_t num_characters = 0, num_replaced = 0;
  std::string repaired;
};

// Reads the text by the table. Each longest beginning of a well-formed sequence, or else one byte, becomes U+FFFD, as in Python.
TableRead read_by_table(std::string_view text) {
  TableRead read;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t longest = 0;
    bool is_whole = false;
    for (const std::vector<ByteRange>& row : well_formed_rows()) {
      std::size_t fits = 0;
      while (fits < row.size() && at + fits < text.size() && static_cast<unsigned char>(text[at + fits]) >= row[fits].first &&
             static_cast<unsigned char>(text[at + fits]) <= row[fits].second)
        ++fits;
      if (fits > longest) longest = fits;
      if (fits == row.size()) is_whole = true;
    }
    ++read.num_characters;
    if (is_whole) {
      read.repaired += text.substr(at, longest);
    } else {
      read.repaired += "\xEF\xBF\xBD";
      read.is_valid = false;
      ++read.num_replaced;
    }
    at += std::max<std::size_t>(longest, 1);
  }
  return read;
}

// Each border of a range in the table, and the bytes next to it.
constexpr std::array<unsigned char, 26> kBorderBytes{0x00, 0x41, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x91, 0x9F, 0xA0, 0xA1, 0xBE, 0xBF,
                                                     0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5};

void expect_read_by_table(const std::string& text) {
  const TableRead expected = read_by_table(text);
  ASSERT_EQ(is_valid_utf8(text), expected.is_valid) << testing::PrintToString(text);
  const std::string repaired = repair_utf8(text);
  ASSERT_EQ(repaired, expected.repaired) << testing::PrintToString(text);
  ASSERT_TRUE(is_valid_utf8(repaired));
  ASSERT_EQ(count_characters(repaired), expected.num_characters) << testing::PrintToString(text);
}

TEST(Utf8Table, SequencesOfUpToTwoBytesAreReadByTheTable) {
  EXPECT_TRUE(is_valid_utf8(""));
  for (unsigned first = 0; first < 256; ++first) {
    ASSERT_NO_FATAL_FAILURE(expect_read_by_table(std::string(1, static_cast<char>(first))));
    for (unsigned second = 0; second < 256; ++second)
      ASSERT_NO_FATAL_FAILURE(expect_read_by_table({static_cast<char>(first), static_cast<char>(second)}));
  }
}

TEST(Utf8Table, LongerSequencesAreReadByTheTableAtItsBorders) {
  for (const unsigned char first : kBorderBytes)
    for (const unsigned char second : kBorderBytes)
      for (const unsigned char third : kBorderBytes) {
        const std::string three{static_cast<char>(first), static_cast<char>(second), static_cast<char>(third)};
        ASSERT_NO_FATAL_FAILURE(expect_read_by_table(three));
        for (const unsigned char fourth : kBorderBytes) ASSERT_NO_FATAL_FAILURE(expect_read_by_table(three + static_cast<char>(fourth)));
      }
}

struct CodePointBytes {
  char32_t code_point;
  std::string_view bytes;
};
constexpr std::array<CodePointBytes, 11> kCodePoints{{{0x41, "A"},
                                                      {0x7F, "\x7F"},
                                                      {0x80, "\xC2\x80"},
                                                      {0x7FF, "\xDF\xBF"},
                                                      {0x800, "\xE0\xA0\x80"},
                                                      {0xD7FF, "\xED\x9F\xBF"},
                                                      {0xE000, "\xEE\x80\x80"},
                                                      {0xFFFF, "\xEF\xBF\xBF"},
                                                      {0x10000, "\xF0\x90\x80\x80"},
                                                      {0x3FFFF, "\xF0\xBF\xBF\xBF"},
                                                      {0x10FFFF, "\xF4\x8F\xBF\xBF"}}};

TEST(Utf8Table, CodePointsHaveTheirBytesAtTheBordersOfEachLength) {
  std::string all;
  for (const CodePointBytes& one : kCodePoints) {
    std::string text;
    append_utf8(one.code_point, text);
    EXPECT_EQ(text, one.bytes) << std::hex << static_cast<unsigned>(one.code_point);
    all += text;
  }
  std::size_t at = 0;
  for (const CodePointBytes& one : kCodePoints) {
    EXPECT_EQ(utf8_char_length(all, at), one.bytes.size());
    EXPECT_EQ(next_code_point(all, at), one.code_point);
  }
  EXPECT_EQ(at, all.size());
  for (auto one = kCodePoints.rbegin(); one != kCodePoints.rend(); ++one) {
    const std::size_t begin = previous_character(all, at);
    EXPECT_EQ(all.substr(begin, at - begin), one->bytes);
    at = begin;
  }
  EXPECT_EQ(at, 0U);
  EXPECT_EQ(previous_character("\x80\x80", 2), 0U) << "the text is invalid, but the search stays inside it";
}

TEST(Utf8Table, RepairHoldsOnlyBytesThatMayBecomeACharacter) {
  struct Held {
    std::string_view bytes;
    std::size_t num_held;
    std::string_view out;
  };
  for (const Held& held : {Held{"a", 0, "a"}, Held{"\xC2", 1, ""}, Held{"\xE0\xA0", 2, ""}, Held{"\xF4\x8F\xBF", 3, ""},
                           Held{"\xF4\x8F\xBF\xBF", 0, "\xF4\x8F\xBF\xBF"}, Held{"\xE0\x9F", 0, "\xEF\xBF\xBD\xEF\xBF\xBD"},
                           Held{"\xF0\x90\xC2", 1, "\xEF\xBF\xBD"}, Held{"\xC1", 0, "\xEF\xBF\xBD"}}) {
    Utf8Repair repair;
    std::string out;
    repair.push(held.bytes, out);
    EXPECT_EQ(repair.num_held_bytes(), held.num_held) << testing::PrintToString(held.bytes);
    EXPECT_EQ(out, held.out) << testing::PrintToString(held.bytes);
    repair.flush(out);
    EXPECT_EQ(out, std::string(held.out) + (held.num_held > 0 ? "\xEF\xBF\xBD" : "")) << testing::PrintToString(held.bytes);
    EXPECT_EQ(repair.num_held_bytes(), 0U);
    repair.push("b", out);
    EXPECT_EQ(out.back(), 'b') << "the next text begins without held bytes";
  }
}

}  // namespace
}  // namespace quire
