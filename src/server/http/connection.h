#pragma once
// One connection. Answers requests one after another, and answers each before it reads the next. While an answer is in flight, a read stays
// pending, so that the connection immediately detects when the client disconnects.
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

// Used on the server's thread only. States: idle (no request) -> reading -> answering -> idle or closed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Events {
    std::function<void(ConnectionState)> on_state;  // called for each change of the state and for progress within a state
    std::function<void(const std::string& client)> on_client;
    std::function<bool()> has_room;  // returns whether this client may have one more answer of the model in flight
    std::function<void()> on_end;    // called once, after the connection has ended
  };

  // `handler` and `options` must outlive this object.
  Connection(boost::asio::ip::tcp::socket socket, RequestHandler& handler, const ServerOptions& options, Events events);

  void start();
  // Closes the connection: immediately if it is idle, otherwise after the current answer.
  void drain();
  void close();

 private:
  // Buffer size of an idle connection. Small, because thousands of connections may be idle.
  static constexpr std::size_t kIdleReadBytes = 512;
  static constexpr std::size_t kBodyReadBytes = 64 << 10;

  template <class T>
  using Task = boost::asio::awaitable<T>;

  Task<void> run();
  // Reads and answers one request. Returns false if the connection must close.
  Task<bool> serve_one();
  // Reads a request. Returns false if the connection must close. If `refusal` is set, the caller sends it without handling the request. If
  // `keep_alive_` is then false, the client may still be sending.
  Task<bool> read_request(HttpRequest& request, std::optional<HttpResponse>& refusal);
  // Waits for the complete header and returns its size, including the empty line. Returns 0 if the header does not arrive or is too large;
  // in the second case sets `refusal`.
  Task<std::size_t> receive_header(std::optional<HttpResponse>& refusal);
  Task<bool> read_header(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> read_body(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> receive_body(RequestParser& parser, BodyBudget::Lease& lease, std::optional<HttpResponse>& refusal);
  Task<bool> wait_for_data();
  Task<bool> send_continue();
  Task<bool> send_response(std::string_view method, HttpResponse response);
  Task<bool> answer(std::string_view method, const std::shared_ptr<AnswerSource>& source);
  Task<bool> wait_for_reply(Reply& reply);
  Task<bool> send_stream(std::string_view method, AnswerSource& source);
  Task<bool> send_stream_header(const AnswerSource& source);
  Task<bool> send_events(std::string events, bool last);
  Task<void> wait_for_signal();
  // Waits for a signal, at most as long as a session may wait for input from its client. After that, times out the answer.
  Task<void> wait_for_input(AnswerSource& source);
  Task<void> linger();

  void watch();
  Task<void> stop_watching();
  void on_wake();
  void begin_exchange();
  void end_exchange();

  boost::beast::tcp_stream stream_;
  // Bytes that were read but not consumed yet. May contain the beginning of the next request.
  boost::beast::flat_buffer buffer_;
  // Expires only in wait_for_input(). Cancelling the timer wakes the waiting coroutine.
  boost::asio::steady_timer signal_;
  RequestHandler* handler_;
  const ServerOptions* options_;
  Events events_;
  // The answer in flight; the coroutine owns it.
  std::weak_ptr<AnswerSource> source_;
  HttpHeaders answer_headers_;  // for the answer to the current request
  // The current request's data for its log line and its span.
  struct Exchange {
    std::string id, answer_id, method, path;
    unsigned status = 0;                  // 0: nothing to report
    std::string error_code, error_param;  // as in HttpResponse
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
  bool writing_ = false;         // events are being written
  bool was_backlogged_ = false;  // at the last wake-up, too many bytes were pending
  bool is_stalled_ = false;      // the connection was closed because the client did not read its stream
  bool is_client_gone_ = false;
  bool body_cut_ = false;  // the body was cut off to release budget for other bodies
};

}  // namespace quire
