// Tests which paths a route matches.
#include "server/api/routes.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Routes, OneStarMatchesANameWithoutSlash) {
  EXPECT_EQ(path_parameter("/v1/requests/*/fork", "/v1/requests/abc/fork"), "abc");
  EXPECT_EQ(path_parameter("/v1/responses/*", "/v1/responses/resp_1"), "resp_1");
  EXPECT_EQ(path_parameter("/v1/responses/*", "/v1/responses/"), "") << "the name is empty";
  EXPECT_EQ(path_parameter("/v1/responses/*", "/v1/responses/a/b"), "");
  EXPECT_EQ(path_parameter("/v1/requests/*/fork", "/v1/requests/fork"), "");
  EXPECT_EQ(path_parameter("/v1/requests/*/fork", "/v1/requests/abc/input"), "");
}

TEST(Routes, TwoStarsMatchSlashes) {
  EXPECT_EQ(path_parameter("/v1/models/**", "/v1/models/org/name"), "org/name");
  EXPECT_EQ(path_parameter("/v1/models/**", "/v1/models/name"), "name");
  EXPECT_EQ(path_parameter("/v1/models/**", "/v1/models/"), "") << "the name is empty";
  EXPECT_EQ(path_parameter("/v1/models/**", "/v1/models"), "");
}

}  // namespace
}  // namespace quire
