#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace quire {
namespace {

constexpr const char* kReplaced = "\xEF\xBF\xBD";

// The expected texts come from Python 3's bytes.decode("utf-8", errors="replace").
TEST(Utf8Repair, ReplacesInvalidBytesLikePython) {
  const std::string r = kReplaced;
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98"
                        "a"),
            r + "a");
  EXPECT_EQ(repair_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(repair_utf8("\xE2\x82\xE2\x82\xAC"), r + "\xE2\x82\xAC");
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(repair_utf8("\xF5z\xFF"), r + "z" + r);
  EXPECT_EQ(repair_utf8("\x80"), r);
  EXPECT_EQ(repair_utf8("\xE0\x80\xC3\xA9"), r + r + "\xC3\xA9");
}

TEST(Utf8Repair, EmitsACharacterWithItsLastByte) {
  Utf8Repair repair;
  std::string out;
  for (const char* byte : {"\xF0", "\x9F", "\x98"}) repair.push(byte, out);
  EXPECT_EQ(out, "");
  EXPECT_EQ(repair.num_held_bytes(), 3U);
  repair.push("\x80", out);
  EXPECT_EQ(out, "\xF0\x9F\x98\x80");
  EXPECT_EQ(repair.num_held_bytes(), 0U);
}

TEST(Utf8Repair, GivesTheSameTextForAnyChunking) {
  std::mt19937 random(7);
  const std::string alphabet = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xFF";
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) bytes += alphabet[random() % alphabet.size()];
    Utf8Repair repair;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = 1 + random() % 5;
      repair.push(std::string_view(bytes).substr(at, length), out);
      EXPECT_TRUE(is_valid_utf8(out));
      at += length;
    }
    repair.flush(out);
    EXPECT_EQ(out, repair_utf8(bytes));
  }
}

TEST(Utf8, CodePointsRoundTrip) {
  for (char32_t code_point = 1; code_point < 0x110000; code_point += code_point < 0x3000 ? 1 : 97) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    append_utf8(code_point, text);
    ASSERT_TRUE(is_valid_utf8(text));
    std::size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), code_point);
    ASSERT_EQ(at, text.size());
  }
}

}  // namespace
}  // namespace quire
