// Which paths a route matches.
#include "server/api/routes.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Routes, AStarIsANameWithoutSlash) {
  EXPECT_EQ(name_in("/v1/requests/*/fork", "/v1/requests/abc/fork"), "abc");
  EXPECT_EQ(name_in("/v1/responses/*", "/v1/responses/resp_1"), "resp_1");
  EXPECT_EQ(name_in("/v1/responses/*", "/v1/responses/"), "") << "no name";
  EXPECT_EQ(name_in("/v1/responses/*", "/v1/responses/a/b"), "");
  EXPECT_EQ(name_in("/v1/requests/*/fork", "/v1/requests/fork"), "");
  EXPECT_EQ(name_in("/v1/requests/*/fork", "/v1/requests/abc/input"), "");
}

}  // namespace
}  // namespace quire
