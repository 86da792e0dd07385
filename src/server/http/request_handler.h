#pragma once
// The interface of the object that answers the requests of all connections.
#include <optional>
#include <string>
#include <string_view>

#include "server/http/body_budget.h"
#include "server/http/http.h"
#include "server/http/reply.h"
#include "server/http/request_log.h"
#include "server/http/server_stats.h"

namespace quire {

// Used on the server's thread only.
class RequestHandler {
 public:
  RequestHandler() = default;
  RequestHandler(const RequestHandler&) = delete;
  RequestHandler& operator=(const RequestHandler&) = delete;
  virtual ~RequestHandler() = default;

  // Returns a response that does not depend on the body: a refusal, or the answer to a browser's preflight. If it returns nullopt, the
  // caller reads the body and calls handle().
  [[nodiscard]] virtual std::optional<HttpResponse> answer_early(const HttpRequest& request) const = 0;

  // Called for a request that has passed answer_early(). client_of() returns the value for HttpRequest::client. is_operator_request()
  // returns whether the route is for the server's operator; such requests are answered even if the limit of concurrent answers is reached.
  [[nodiscard]] virtual std::string client_of(const HttpRequest& request) const = 0;
  [[nodiscard]] virtual bool is_operator_request(const HttpRequest& request) const = 0;

  // Answers a request that has passed answer_early(). Moves the body out of `request`. Calls `wake` whenever an answer has something new to
  // send, and when a pending reply is ready. `wake` must stay callable during the lifetime of the answer or the pending reply.
  [[nodiscard]] virtual Reply handle(HttpRequest& request, const Wake& wake) = 0;

  // Returns the response in the error format of the API that `path` belongs to.
  [[nodiscard]] virtual HttpResponse format_for_path(std::string_view path, HttpResponse response) const = 0;

  // Returns an id that is unique, even across runs of the server.
  [[nodiscard]] virtual std::string next_request_id() = 0;
  [[nodiscard]] virtual BodyBudget& body_budget() = 0;
  [[nodiscard]] virtual BodyReaders& body_readers() = 0;
  [[nodiscard]] virtual RequestLog& log() = 0;
  [[nodiscard]] virtual ServerStats& stats() = 0;
};

}  // namespace quire
