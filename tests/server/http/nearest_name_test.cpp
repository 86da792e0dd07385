#include "server/http/nearest_name.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace quire
