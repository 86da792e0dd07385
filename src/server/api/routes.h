#pragma once
// The interface between an API and the router: the API's routes and the format of its errors. To add an API, add a folder with a MakeRoutes
// function and an entry in the router's list. The handlers use Serving. An API for requests to the model also needs a function that reads
// its body into a CompletionRequest, and an AnswerShape with an AnswerWriter.
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/http/reply.h"

namespace quire {

class Serving;

// The API key that a route requires. server_key: the server's key, not a tenant's key. admin: server_key, and admit_operator() must also
// accept the request.
enum class Access : std::uint8_t { open, key, server_key, admin };

struct Route {
  std::string_view path;  // a literal path; "*" matches a name without "/", "**" at the end matches a name that may contain "/"
  std::string_view method;
  Access access = Access::key;
  // Called on the server's thread. May move the request's body. `wake`: see RequestHandler::handle().
  std::function<Reply(HttpRequest& request, const Wake& wake)> handle;
  bool expects_form_data = false;  // the body is multipart/form-data, not JSON
};

struct ApiRoutes {
  std::vector<Route> routes;
  // Converts the errors of all paths with this prefix, including paths without a route. Null: errors keep the format of error_response().
  std::string_view error_path_prefix{};
  HttpResponse (*convert_error)(HttpResponse response) = nullptr;
};

// `serving` must outlive the routes.
using MakeRoutes = ApiRoutes (*)(Serving& serving);

// Returns the part of `path` that matches "*" in the route, or an empty string if the path does not match the route.
[[nodiscard]] std::string_view path_parameter(std::string_view route, std::string_view path);

}  // namespace quire
