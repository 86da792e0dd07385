// Tests that the API description (docs/openapi.json) matches the server's routes.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <set>
#include <string>

#include "server/operate/api_page.h"
#include "server/played_router.h"

namespace quire {
namespace {

using OpenApiTest = PlayedRouter;

// Replaces "**", for names with slashes, by "*".
std::string with_one_star(std::string route) {
  return route.ends_with("**") ? route.substr(0, route.size() - 1) : route;
}

// Converts "/v1/requests/{id}/fork" to the form of a route.
std::string with_star(std::string path) {
  const std::size_t open = path.find('{'), close = path.find('}');
  return open == std::string::npos ? path : path.replace(open, close - open + 1, "*");
}

std::string upper(std::string method) {
  for (char& c : method) c = static_cast<char>(c - 'a' + 'A');
  return method;
}

TEST_F(OpenApiTest, DescribesEveryRouteAndNoOther) {
  Serving serving(client_, *model_, options_, logger_, {});
  std::set<std::string> routes, described;
  for (const MakeRoutes make : Router::all_apis())
    for (const Route& route : make(serving).routes)
      EXPECT_TRUE(routes.insert(with_one_star(std::string(route.method) + " " + std::string(route.path))).second)
          << route.path << " is registered twice";
  const boost::json::value description = boost::json::parse(openapi_json());
  for (const auto& [path, calls] : description.at("paths").as_object())
    for (const auto& call : calls.as_object()) described.insert(upper(std::string(call.key())) + " " + with_star(std::string(path)));
  EXPECT_EQ(described, routes);
  EXPECT_GT(routes.size(), 20U);
}

}  // namespace
}  // namespace quire
