#pragma once
// Who answers the requests of a connection.
#include <optional>
#include <string>
#include <string_view>

#include "server/http/body_budget.h"
#include "server/http/http.h"
#include "server/http/reply.h"
#include "server/http/request_log.h"
#include "server/http/server_stats.h"

namespace quire {

// Server's thread only.
class RequestHandler {
 public:
  RequestHandler() = default;
  RequestHandler(const RequestHandler&) = delete;
  RequestHandler& operator=(const RequestHandler&) = delete;
  virtual ~RequestHandler() = default;

  // What to answer without reading the body: a refusal, or a browser's pre-flight. Nothing: read it and call handle().
  [[nodiscard]] virtual std::optional<HttpResponse> answer_early(const HttpRequest& request) const = 0;

  // `request` is one that answer_early() let pass; its body is taken. `wake` is called whenever an answer has something new, or a
  // pending reply is there; it must stay callable as long as they live.
  [[nodiscard]] virtual Reply handle(HttpRequest& request, const Wake& wake) = 0;

  // A response to a request of this path as its clients read it: errors have the shape of their API.
  [[nodiscard]] virtual HttpResponse in_shape_of(std::string_view path, HttpResponse response) const = 0;

  // Unlike any other, also of other runs of the server.
  [[nodiscard]] virtual std::string next_request_id() = 0;
  [[nodiscard]] virtual BodyBudget& body_budget() = 0;
  [[nodiscard]] virtual RequestLog& log() = 0;
  [[nodiscard]] virtual ServerStats& stats() = 0;
};

}  // namespace quire
