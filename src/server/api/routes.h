#pragma once
// The interface of an API to the router: its routes, and the format of its errors. A new API is a folder with a MakeRoutes function, and an
// entry in the router's list. Its handlers use Serving. For requests to the model it also provides a reader from its body to
// CompletionRequest, and an AnswerShape with an AnswerWriter.
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/http/reply.h"

namespace quire {

class Serving;

// The required key. server_key: the server's key, not a tenant's. admin: server_key, and admit_operator() must agree.
enum class Access : std::uint8_t { open, key, server_key, admin };

struct Route {
  std::string_view path;  // a literal; "*" stands for a name without "/", "**" at the end for a name that may contain "/"
  std::string_view method;
  Access access = Access::key;
  // Called on the server's thread. It may move the request's body. `wake`: see RequestHandler::handle().
  std::function<Reply(HttpRequest& request, const Wake& wake)> handle;
  bool expects_form_data = false;  // its body is multipart/form-data, not JSON
};

struct ApiRoutes {
  std::vector<Route> routes;
  // `convert_error` converts the errors of all paths with this prefix, including paths without a route. null: errors stay as
  // error_response() makes them.
  std::string_view error_path_prefix{};
  HttpResponse (*convert_error)(HttpResponse response) = nullptr;
};

// `serving` must outlive the routes.
using MakeRoutes = ApiRoutes (*)(Serving& serving);

// Returns the part of `path` that "*" of the route stands for, or an empty string if they do not match.
[[nodiscard]] std::string_view path_parameter(std::string_view route, std::string_view path);

}  // namespace quire
