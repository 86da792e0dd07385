#pragma once
// One connection: requests in turn, each answered before the next is read. While an answer is under way a read stays pending, so a client
// that goes away is seen at once.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "quire/server_options.h"
#include "server/http/connection_table.h"
#include "server/http/http.h"
#include "server/http/reply.h"
#include "server/http/request_handler.h"
#include "server/http/request_head.h"

namespace quire {

// Server's thread only. States: idle (no request) -> reading -> answering -> idle or closed.
class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Events {
    std::function<void(ConnectionState)> on_state;
    std::function<void()> on_end;  // once, when the connection is over
  };

  // `handler` and `options` must outlive this.
  Session(boost::asio::ip::tcp::socket socket, RequestHandler& handler, const ServerOptions& options, Events events);

  void start();
  // Closes the connection now if it is idle, else after the present answer.
  void drain();
  void close();

 private:
  template <class T>
  using Task = boost::asio::awaitable<T>;

  Task<void> run();
  // False: the connection is over.
  Task<bool> serve_one();
  // `refusal`: to be answered instead of the request. Where keep_alive_ is false then, the client may still be sending.
  Task<bool> read_request(HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> read_header(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> read_body(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> wait_for_data();
  Task<bool> send_continue();
  Task<bool> send_response(std::string_view method, HttpResponse response);
  Task<bool> answer(std::string_view method, const std::shared_ptr<AnswerSource>& source);
  Task<bool> wait_for_reply(Reply& reply);
  Task<bool> send_stream(AnswerSource& source);
  Task<bool> send_stream_header();
  Task<bool> send_events(std::string events, bool last);
  Task<void> wait_for_signal();
  // A session of the engine's may not wait for its client for ever.
  Task<void> wait_for_input(AnswerSource& source);
  Task<void> linger();

  void watch();
  Task<void> stop_watching();
  void on_wake();
  void begin_exchange();
  void end_exchange();

  boost::beast::tcp_stream stream_;
  // What was read and not used yet: also the beginning of the next request.
  boost::beast::flat_buffer buffer_;
  // Never runs out but in wait_for_input(); cancelled to wake who waits.
  boost::asio::steady_timer signal_;
  RequestHandler* handler_;
  const ServerOptions* options_;
  Events events_;
  // Of the answer under way, which the coroutine holds.
  std::weak_ptr<AnswerSource> source_;
  HttpHeaders answer_headers_;  // for the present request's answer
  // The request under way, for its log line and its span.
  struct Exchange {
    std::string id, method, path;
    unsigned status = 0;  // 0: nothing to tell
    AnswerSource::TokenCounts tokens;
    std::optional<TraceContext> trace;
    std::optional<AnswerSource::Progress> progress;
    std::chrono::steady_clock::time_point start;
  };
  Exchange exchange_;
  std::string peer_;
  unsigned http_version_ = 11;
  bool keep_alive_ = true;
  bool idle_ = true;
  bool draining_ = false;
  bool watching_ = false;
  bool stop_watching_ = false;
  bool writing_ = false;     // events are on their way to the client
  bool was_behind_ = false;  // too much came since
  bool gone_ = false;
};

}  // namespace quire
