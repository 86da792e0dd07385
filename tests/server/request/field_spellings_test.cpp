// Tests which field a misspelt name means, and the aliases of fields.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "server/request/object_reader.h"
#include "server/request/request_fields.h"

namespace quire {
namespace {

TEST(MisspeltField, ComparesWordsWithoutCaseAndSeparators) {
  const std::string_view known[] = {"zip_code_az", "a_bc", "abcd_"};
  EXPECT_EQ(misspelt_field("ZIP-CODE-AZ", known), "zip_code_az");
  EXPECT_EQ(misspelt_field("zipCodeAz", known), "zip_code_az");
  EXPECT_EQ(misspelt_field("abc", known), "") << "three letters are too few";
  EXPECT_EQ(misspelt_field("ABCD", known), "abcd_");
  EXPECT_EQ(misspelt_field("abcd_", known), "") << "it is the field itself";
}

TEST(MisspeltField, AllowsOneWrongLetterOrTwoInLongNames) {
  const std::string_view known[] = {"letter", "lettuce", "long_field", "medium_on", "short"};
  const std::pair<const char*, const char*> cases[] = {
      {"lettex", "letter"},
      {"etter", ""},
      {"lletter", "letter"},
      {"lettr", ""},
      {"lettar", "letter"},
      {"lxttxr", ""},
      {"lettuc", "lettuce"},
      {"lettuces", "lettuce"},
      {"long_fixxd", "long_field"},
      {"long_xxxld", ""},
      {"xlong_fieldx", "long_field"},
      {"ng_field", ""},
      {"medium_xn", "medium_on"},
      {"medium_xx", ""},
      {"shorx", ""},
      {"shortx", ""},
  };
  for (const auto& [name, field] : cases) EXPECT_EQ(misspelt_field(name, known), field) << name;
  EXPECT_EQ(misspelt_field("shorx", known, 5), "short");
  const std::string_view near[] = {"aabbccddxx", "aabbccddex", "aabbccddey"};
  EXPECT_EQ(misspelt_field("aabbccddee", near), "aabbccddex") << "the fewest wrong letters, and the first of equal ones";
  const std::string forty(39, 'a');
  const std::string_view longest[] = {forty};
  EXPECT_EQ(misspelt_field(forty + "a", longest), forty);
  const std::string_view longer[] = {std::string_view("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")};
  EXPECT_EQ(misspelt_field(std::string(41, 'a'), longer), "") << "names of more than 40 bytes are not compared";
}

TEST(RequestAliases, TakeTheValueOfTheirField) {
  boost::json::object body{{"max_new_tokens", 5}, {"n_predict", -1}, {"random_seed", 9}, {"seed", 9.0}};
  const auto taken = apply_aliases(body, FieldApi::completion);
  ASSERT_TRUE(taken) << taken.error().to_string();
  EXPECT_EQ(taken->size(), 2U);
  EXPECT_EQ(body.at("max_tokens"), 5);
  EXPECT_TRUE(same_value(body.at("seed"), 9));
  for (const char* gone : {"max_new_tokens", "n_predict", "random_seed"}) EXPECT_FALSE(body.contains(gone)) << gone;
  EXPECT_EQ(with_alias_name(*taken, {ErrorCode::invalid_argument, "max_tokens", "a", "b"}).field, "max_new_tokens");
  EXPECT_EQ(with_alias_name(*taken, {ErrorCode::invalid_argument, "stop", "a", "b"}).field, "stop");
}

}  // namespace
}  // namespace quire
