#pragma once
// One request to the process of a model, and its response.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/body_budget.h"
#include "server/http/http.h"

namespace quire {

struct UpstreamRequest {
  std::string method, target;
  HttpHeaders headers;  // without Host, Content-Length and Connection
  std::string body;
  std::shared_ptr<BodyBudget::Lease> body_lease{};
};

// Used on the server's thread only. States: waiting -> receiving -> complete or failed. The coroutine of start() keeps the object alive.
class UpstreamCall : public std::enable_shared_from_this<UpstreamCall> {
 public:
  enum class State : std::uint8_t { waiting, receiving, complete, failed };

  // `on_change` is called after each change of the state, and for new bytes of a stream, until abort().
  UpstreamCall(boost::asio::io_context& io, UpstreamRequest request, std::function<void()> on_change);

  // Connects to this port of 127.0.0.1, sends the request and receives the response.
  void start(std::uint16_t port);
  // Closes the connection, by which the model's server aborts the request.
  void abort();

  [[nodiscard]] State state() const { return state_; }
  // Returns why the call has failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // Returns status, headers and content type, which are known unless the state is waiting. The body is in take_body().
  [[nodiscard]] const HttpResponse& head() const { return head_; }
  // Returns whether the response has no length: its parts are passed on when they arrive. Otherwise the body is complete with the state.
  [[nodiscard]] bool is_stream() const { return is_stream_; }
  [[nodiscard]] std::size_t num_body_bytes() const { return body_.size(); }
  // Returns the bytes that have arrived. A stream then continues to receive.
  [[nodiscard]] std::string take_body();

 private:
  boost::asio::awaitable<void> run(std::uint16_t port);
  boost::asio::awaitable<void> send();
  boost::asio::awaitable<void> receive();
  void set_state(State state);
  void fail(std::string why);

  boost::asio::io_context* io_;
  UpstreamRequest request_;
  std::function<void()> on_change_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer room_;  // cancelled when take_body() has made room
  State state_ = State::waiting;
  HttpResponse head_;
  bool is_stream_ = false, is_aborted_ = false;
  std::string body_, failure_;
};

}  // namespace quire
