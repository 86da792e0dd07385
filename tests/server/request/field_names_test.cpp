// Tests that errors name the fields of the client's API.
#include "server/request/field_names.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(RenamedFields, KeepTheRestOfTheirPath) {
  constexpr FieldName kNames[] = {{"a.b", "x"}, {"a", "y"}, {"messages", "input"}};
  const auto renamed = [&](const std::string& field) {
    return rename_fields(kNames, {ErrorCode::invalid_argument, field, "m", "r"}).field;
  };
  EXPECT_EQ(renamed("a"), "y");
  EXPECT_EQ(renamed("a.c"), "y.c");
  EXPECT_EQ(renamed("a.b"), "x");
  EXPECT_EQ(renamed("a.b.c"), "x.c");
  EXPECT_EQ(renamed("ab"), "ab");
  EXPECT_EQ(renamed("messages[3].content"), "input");
  EXPECT_EQ(renamed("=messages[3].content"), "messages[3].content") << "a name of the client stays";
  EXPECT_EQ(renamed("tools[10].function.name"), "tools[10].name");
  EXPECT_EQ(renamed("tool[1].function.name"), "tool[1].function.name");
  EXPECT_EQ(renamed("tools[1].type"), "tools[1].type");
}

}  // namespace
}  // namespace quire
