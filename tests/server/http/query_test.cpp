// Tests the values and errors of query parameters.
#include "server/http/query.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(QueryErrors, NameTheParameterTheProblemAndTheFix) {
  const auto error = [](const std::string& query) {
    QueryReader reader("/x" + query);
    (void)reader.text("mode", "");
    (void)reader.boolean("deep", false);
    (void)reader.integer("size");
    const auto done = reader.finish();
    return done ? "accepted" : done.error().to_string();
  };
  EXPECT_EQ(error(""), "accepted");
  EXPECT_EQ(error("?"), "accepted");
  EXPECT_EQ(error("?&=1"), "accepted") << "a field without a name is skipped";
  EXPECT_EQ(error("?mode=%zz"), "the query string is not correctly percent-encoded; percent-encode it");
  EXPECT_EQ(error("?deep=maybe"), "deep: is 'maybe'; use true or false");
  EXPECT_EQ(error("?size=1x"), "size: is '1x'; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size="), "size: is ''; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size=-1"), "size: is '-1'; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size=18446744073709551616"), "size: is '18446744073709551616'; send a number such as 8589934592, or leave it out");
  EXPECT_EQ(error("?size=1&size=1"), "size: is given more than once; send it once");
  EXPECT_EQ(error("?mod=1"), "mod: is not a parameter of this endpoint; did you mean 'mode'?");
  EXPECT_EQ(error("?zzzzzz=1"), "zzzzzz: is not a parameter of this endpoint; known parameters: mode, deep, size");
}

TEST(QueryValues, AreReadInEverySpelling) {
  const auto flag = [](const std::string& value) { return QueryReader("/x?deep=" + value).boolean("deep", true); };
  for (const char* yes : {"true", "1", "yes", "on", "TRUE", "Yes", "oN"}) EXPECT_TRUE(flag(yes)) << yes;
  for (const char* no : {"false", "0", "no", "off", "FALSE", "oFF", "maybe"}) EXPECT_FALSE(flag(no)) << no;
  EXPECT_TRUE(QueryReader("/x").boolean("deep", true));
  EXPECT_FALSE(QueryReader("/x").boolean("deep", false));
  EXPECT_EQ(QueryReader("/x?size=18446744073709551615").integer("size"), 18446744073709551615U);
  EXPECT_EQ(QueryReader("/x?size=0").integer("size"), 0U);
  EXPECT_FALSE(QueryReader("/x").integer("size"));
  EXPECT_EQ(QueryReader("/x?mode=a&mode=b%20c").text("mode", "d"), "b c");
  EXPECT_EQ(QueryReader("/x").text("mode", "d"), "d");
  EXPECT_EQ(decoded_path("a%2Fb"), "a/b");
  EXPECT_FALSE(decoded_path("a%2"));
}

}  // namespace
}  // namespace quire
