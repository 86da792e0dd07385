#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/sample_vocabulary.h"
#include "text/utf8.h"

namespace quire {
namespace {

using test::add_token;
using AddedType = TokenizerSpec::TokenType;

// A vocabulary of added tokens. Normalization turns 'e' into 'E'.
class AddedSample {
 public:
  AddedSample() {
    spec_.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
    add_token(spec_, "plain");
  }
  TokenId add(const std::string& text, AddedType type, TokenizerSpec::AddedToken flags = {}) {
    flags.id = add_token(spec_, text, type);
    spec_.added_tokens.push_back(flags);
    return flags.id;
  }
  // Returns "begin-end:id", or "none".
  [[nodiscard]] std::string found(std::string_view text, std::size_t from = 0, bool parse_special = true,
                                  AddedTokens::TextForm form = AddedTokens::TextForm::as_written) const {
    const Vocabulary vocabulary = Vocabulary::create(spec_).value();
    const AddedTokens added(spec_, vocabulary, [](std::string_view written) {
      std::string changed(written);
      std::ranges::replace(changed, 'e', 'E');
      return changed;
    });
    const auto match = added.find(text, from, parse_special, form);
    return match ? std::to_string(match->begin) + "-" + std::to_string(match->end) + ":" + std::to_string(match->token) : "none";
  }

 private:
  TokenizerSpec spec_;
};

TEST(AddedTokenSearch, FindsTheLeftmostThenTheLongestToken) {
  AddedSample sample;
  for (const char* text : {"<", "<a", "<ab", "<abcd", "ab", "b"}) sample.add(text, AddedType::user_defined);
  struct Case {
    const char* text;
    std::size_t from;
    const char* found;
  };
  for (const Case& one : {Case{"x<abc", 0, "1-4:3"}, Case{"<abcd", 0, "0-5:4"}, Case{"<a", 0, "0-2:2"}, Case{"<", 0, "0-1:1"},
                          Case{"<x", 0, "0-1:1"}, Case{"xab", 0, "1-3:5"}, Case{"xab", 2, "2-3:6"}, Case{"xab", 3, "none"},
                          Case{"", 0, "none"}, Case{"plain", 0, "none"}, Case{"<abce", 1, "1-3:5"}})
    EXPECT_EQ(sample.found(one.text, one.from), one.found) << one.text;
}

TEST(AddedTokenSearch, SpecialTokensMatchOnlyWhenTheyAreParsed) {
  AddedSample sample;
  sample.add("<a", AddedType::user_defined);
  sample.add("<a>", AddedType::control);
  sample.add("<u>", AddedType::unknown);
  EXPECT_EQ(sample.found("<a>"), "0-3:2");
  EXPECT_EQ(sample.found("<a>", 0, false), "0-2:1") << "the shorter token is user-defined";
  EXPECT_EQ(sample.found("<u>"), "0-3:3");
  EXPECT_EQ(sample.found("<u><a", 0, false), "3-5:1");
}

TEST(AddedTokenSearch, SpecialTokensComeFirstAmongEqualTexts) {
  AddedSample sample;
  const TokenizerSpec::AddedToken normalized{.normalized = true};
  sample.add("<e>", AddedType::user_defined, normalized);
  sample.add("<E>", AddedType::user_defined, normalized);
  sample.add("<e>", AddedType::control, normalized);
  constexpr auto kForm = AddedTokens::TextForm::normalized;
  EXPECT_EQ(sample.found("x<E>", 0, true, kForm), "1-4:3");
  EXPECT_EQ(sample.found("x<E>", 0, false, kForm), "1-4:1") << "the first of the others";
  EXPECT_EQ(sample.found("x<e>", 0, true, kForm), "none") << "the token's text is normalized, too";
  EXPECT_EQ(sample.found("x<E>"), "none") << "no token is searched for as written";
}

TEST(AddedTokenSearch, StripsAllWhiteSpaceOfUnicodeAndNoOtherCharacter) {
  AddedSample sample;
  sample.add("<l>", AddedType::control, {.strip_left = true});
  sample.add("<r>", AddedType::control, {.strip_right = true});
  sample.add("<n>", AddedType::control);
  const std::u32string spaces =
      U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200A\u2028\u2029\u202F\u205F\u3000";
  EXPECT_EQ(spaces.size(), 25U);
  for (char32_t character = 1; character < 0x3100; ++character) {
    std::string one;
    append_utf8(character, one);
    if (one == "<" || one == ">") continue;
    const bool is_space = spaces.find(character) != std::u32string::npos;
    const std::size_t size = one.size();
    ASSERT_EQ(sample.found("a" + one + "<l>" + one, 0), std::to_string(is_space ? 1 : 1 + size) + "-" + std::to_string(4 + size) + ":1")
        << std::hex << static_cast<unsigned>(character);
    if (character > 0x100 && character % 16 != 0 && !is_space) continue;  // the same function decides on the other side
    ASSERT_EQ(sample.found(one + "<r>" + one + "a", 0),
              std::to_string(size) + "-" + std::to_string(size + 3 + (is_space ? size : 0)) + ":2")
        << std::hex << static_cast<unsigned>(character);
  }
  EXPECT_EQ(sample.found(" <n> "), "1-4:3");
  EXPECT_EQ(sample.found("  <l>"), "0-5:1");
  EXPECT_EQ(sample.found("   <l>", 2), "2-6:1") << "text before the start of the search stays";
  EXPECT_EQ(sample.found("<r> \n"), "0-5:2");
}

TEST(AddedTokenSearch, SingleWordsHaveNoWordCharacterNextToThem) {
  AddedSample sample;
  sample.add("cat", AddedType::user_defined, {.single_word = true});
  for (const char* word : {"a", "Z", "0", "9", "_", "\u00E9", "\u01C5", "\u02B0", "\u4EBA", "\u0301", "\u0903", "\u20DD", "\u0661",
                           "\u2160", "\u203F", "\u200C", "\u200D"}) {
    EXPECT_EQ(sample.found(std::string("cat") + word), "none") << word;
    EXPECT_EQ(sample.found(std::string(word) + "cat"), "none") << word;
  }
  for (const char* other : {" ", "-", ".", "$", "\u00B2", "\u00A0", "\u2019", "\u20AC", "\u200B", "\u200E", "(", "\U0001F600"}) {
    EXPECT_EQ(sample.found(std::string("cat") + other), "0-3:1") << other;
    const std::size_t size = std::string_view(other).size();
    EXPECT_EQ(sample.found(std::string(other) + "cat"), std::to_string(size) + "-" + std::to_string(size + 3) + ":1") << other;
  }
  EXPECT_EQ(sample.found("cat"), "0-3:1");
  EXPECT_EQ(sample.found("cats catcat cat"), "12-15:1") << "the search continues after a part of a word";
}

TEST(AddedTokenSearch, SkipsTokensWithoutAText) {
  AddedSample sample;
  sample.add("", AddedType::control);
  sample.add("a\xFF", AddedType::user_defined);
  sample.add("b", AddedType::user_defined);
  EXPECT_EQ(sample.found("ab"), "1-2:3");
}

}  // namespace
}  // namespace quire
