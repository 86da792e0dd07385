#pragma once
// What an API offers to the router: its routes, and how its clients read errors. Adding an API is a folder that makes this, and a line of
// the router. What it needs for its handlers is Serving; for requests to the model it brings a reader from its body to CompletionRequest
// and an AnswerShape with its AnswerWriter.
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/http/reply.h"

namespace quire {

class Serving;

// own_key: the server's, not a tenant's. admin: with it, and admit_operator() agrees.
enum class Access : std::uint8_t { open, key, own_key, admin };

struct Route {
  std::string_view path;  // a literal; "*" stands for a name without "/"
  std::string_view method;
  Access access = Access::key;
  // Server's thread. The request's body is taken. `wake`: as RequestHandler::handle() has it.
  std::function<Reply(HttpRequest& request, const Wake& wake)> handle;
  bool takes_form = false;  // its body is multipart/form-data instead of JSON
};

struct ApiRoutes {
  std::vector<Route> routes;
  // Errors of all paths that begin with this, also of those that are none, are told by `tell_error`; empty: as error_response() makes them.
  std::string_view errors_under{};
  HttpResponse (*tell_error)(HttpResponse response) = nullptr;
};

// `serving` outlives what it makes.
using MakeRoutes = ApiRoutes (*)(Serving& serving);

// What "*" of the route stands for in a path; empty: they do not match.
[[nodiscard]] std::string_view name_in(std::string_view route, std::string_view path);

}  // namespace quire
