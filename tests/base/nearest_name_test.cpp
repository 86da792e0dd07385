#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace quire {
namespace {

TEST(NearestName, FindsMisspeltNamesOnly) {
  const std::vector<std::string_view> known = {"temperature", "top_p", "max_tokens"};
  EXPECT_EQ(nearest_name("temprature", known), "temperature");
  EXPECT_EQ(nearest_name("topp", known), "top_p");
  EXPECT_FALSE(nearest_name("banana", known).has_value());
}

TEST(NearestNames, AreWithinAThirdOfTheLetters) {
  struct NameCase {
    std::string name;
    std::vector<std::string_view> known;
    std::string found;
  };
  const NameCase cases[] = {
      {"ab", {"ax"}, "ax"},
      {"ab", {"xy"}, ""},
      {"abcde", {"abcdx"}, "abcdx"},
      {"abcde", {"abcxx"}, ""},
      {"abcdef", {"abcdxx"}, "abcdxx"},
      {"abcdef", {"abcxxx"}, ""},
      {"abc", {"abcd"}, "abcd"},
      {"abdc", {"abcd"}, "abcd"},
      {"bacde", {"abced"}, ""},
      {"abcd", {"abc"}, "abc"},
      {"abcd", {"bcd"}, "bcd"},
      {"abcdef", {"abcdxx", "abcdex", "abcdey"}, "abcdex"},
      {std::string(40, 'a'), {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"},
      {std::string(41, 'a'), {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"}, ""},
  };
  for (const NameCase& one : cases) EXPECT_EQ(nearest_name(one.name, one.known).value_or(""), one.found) << one.name;
}

}  // namespace
}  // namespace quire
