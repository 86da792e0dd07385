// The description of the API (docs/openapi.json) and the routes that there are.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <set>
#include <string>

#include "server/operate/api_page.h"
#include "server/played_router.h"

namespace quire {
namespace {

using OpenApiTest = PlayedRouter;

// "/v1/requests/{id}/fork" as a route has it.
std::string with_star(std::string path) {
  const std::size_t open = path.find('{'), close = path.find('}');
  return open == std::string::npos ? path : path.replace(open, close - open + 1, "*");
}

std::string upper(std::string method) {
  for (char& c : method) c = static_cast<char>(c - 'a' + 'A');
  return method;
}

TEST_F(OpenApiTest, ItNamesEveryRouteAndNoOther) {
  Serving serving(client_, *model_, options_, logger_, {});
  std::set<std::string> routes, told;
  for (const MakeRoutes make : Router::all_apis())
    for (const Route& route : make(serving).routes)
      EXPECT_TRUE(routes.insert(std::string(route.method) + " " + std::string(route.path)).second) << route.path << " is there twice";
  const boost::json::value description = boost::json::parse(openapi_json());
  for (const auto& [path, calls] : description.at("paths").as_object())
    for (const auto& call : calls.as_object()) told.insert(upper(std::string(call.key())) + " " + with_star(std::string(path)));
  EXPECT_EQ(told, routes);
  EXPECT_GT(routes.size(), 20U);
}

}  // namespace
}  // namespace quire
