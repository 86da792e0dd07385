#include "text/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "text/utf8.h"

namespace quire {
namespace {

TEST(Nfc, ComposesAndReordersCombiningMarks) {
  EXPECT_EQ(normalize_nfc("e\xCC\x81"), "\xC3\xA9");
  // The cedilla is ordered before the acute, in either input order.
  EXPECT_EQ(normalize_nfc("c\xCC\x81\xCC\xA7"), "\xE1\xB8\x89");
  // The cases are Hangul and a character whose normal form is another character (the ohm sign).
  EXPECT_EQ(normalize_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");
  EXPECT_EQ(normalize_nfc("\xE2\x84\xA6"), "\xCE\xA9");
  EXPECT_EQ(normalize_nfc(""), "");
}

TEST(Nfc, DoesNotReorderMarksNewerThanTheReference) {
  // By current tables, U+0330 is ordered before U+1AC8 (Unicode 14).
  EXPECT_EQ(normalize_nfc(".\xE1\xAB\x88\xCC\xB0"), ".\xE1\xAB\x88\xCC\xB0");
  EXPECT_EQ(normalize_nfc("e\xCC\x81\xE1\xAB\x88"
                          "e\xCC\x81"),
            "\xC3\xA9\xE1\xAB\x88\xC3\xA9");
}

// utf8proc's function for a whole text is correct but quadratic.
std::string normalize_naively(const std::string& text) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto length = utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, &std::free);
  return {reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length)};
}

TEST(Nfc, AgreesWithUtf8procOnEveryCharacter) {
  for (char32_t character = 1; character < 0x30000; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    std::string text;
    for (const char32_t part : {U'a', character, U'\u0301', U'\u0327', U'b', character}) append_utf8(part, text);
    const std::string expected = normalize_naively(text);
    const std::string normalized = normalize_nfc(text);
    if (normalized == expected) continue;
    // Marks that the reference's tables do not contain keep their position.
    std::string mark;
    append_utf8(character, mark);
    ASSERT_EQ(normalized, "a" + mark + "\u0327\u0301b" + mark) << "U+" << std::hex << static_cast<unsigned>(character);
  }
}

TEST(Nfc, AgreesWithUtf8procOnRandomTexts) {
  std::mt19937 random(23);
  // The alphabet has characters that compose, decompose and reorder: letters, marks of several classes, Hangul, Indic vowel signs,
  // singletons.
  const std::u32string alphabet =
      U"aeos \u00C5\u1E69\u1F82\u0390\u0301\u0323\u0327\u0345\u0338\u0308\u1112\u1161\u11AB\uD558\uD55C\u0DD9\u0DCF\u0DCA\u0BC6"
      U"\u0BBE\u1025\u102E\u212B\uF900\u3099\u304B\u0958\u2ADC\U0001D15E\U0002F800\u4EBA\U0001F600\u200D";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned i = 0; i < random() % 24; ++i) append_utf8(alphabet[random() % alphabet.size()], text);
    ASSERT_EQ(normalize_nfc(text), normalize_naively(text)) << text;
  }
}

// An implementation that exchanges neighbours takes minutes.
TEST(Nfc, ReordersAMegabyteOfMarksQuickly) {
  const std::size_t count = (1 << 20) / 4;
  std::string text = "a", above, below;
  for (std::size_t i = 0; i < count; ++i) above += "\u0301";
  for (std::size_t i = 0; i < count; ++i) below += "\u0323";
  const auto begin = std::chrono::steady_clock::now();
  const std::string normalized = normalize_nfc(text + above + below);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  // U+1EA1 is a with a dot below. The other dots follow, then the acutes.
  EXPECT_TRUE(normalized == "\u1EA1" + below.substr(2) + above);
}

}  // namespace
}  // namespace quire
