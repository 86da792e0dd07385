#pragma once
// One connection. It answers requests one after another, each before it reads the next. While an answer is in flight a read stays pending,
// so the connection notices immediately when the client disconnects.
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
    std::function<void(ConnectionState)> on_state;  // also called on progress within a state
    std::function<void(const std::string& client)> on_client;
    std::function<bool()> has_room;  // whether this client may have one more answer of the model
    std::function<void()> on_end;    // called once, when the connection has ended
  };

  // `handler` and `options` must outlive this.
  Connection(boost::asio::ip::tcp::socket socket, RequestHandler& handler, const ServerOptions& options, Events events);

  void start();
  // Closes the connection: now if it is idle, else after the current answer.
  void drain();
  void close();

 private:
  // Thousands of connections may be idle, so waiting for a request must cost little memory.
  static constexpr std::size_t kIdleReadBytes = 512;
  static constexpr std::size_t kBodyReadBytes = 64 << 10;

  template <class T>
  using Task = boost::asio::awaitable<T>;

  Task<void> run();
  // Reads and answers one request. Returns false if the connection is over.
  Task<bool> serve_one();
  // Returns false if the connection is over. `refusal`: the response to send without handling the request. If `keep_alive_` is then false,
  // the client may still be sending.
  Task<bool> read_request(HttpRequest& request, std::optional<HttpResponse>& refusal);
  // Waits for the complete header and returns its size, including the empty line. Returns 0 if it does not arrive, or if `refusal` says
  // what is wrong with it.
  Task<std::size_t> receive_header(std::optional<HttpResponse>& refusal);
  Task<bool> read_header(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> read_body(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal);
  Task<bool> receive_body(RequestParser& parser, BodyBudget::Lease& lease, std::optional<HttpResponse>& refusal);
  Task<bool> wait_for_data();
  Task<bool> send_continue();
  Task<bool> send_response(std::string_view method, HttpResponse response);
  Task<bool> answer(std::string_view method, const std::shared_ptr<AnswerSource>& source);
  Task<bool> wait_for_reply(Reply& reply);
  Task<bool> send_stream(AnswerSource& source);
  Task<bool> send_stream_header();
  Task<bool> send_events(std::string events, bool last);
  Task<void> wait_for_signal();
  // Waits for a signal, but not longer than a streaming session may wait for input from its client. Then the answer times out.
  Task<void> wait_for_input(AnswerSource& source);
  Task<void> linger();

  void watch();
  Task<void> stop_watching();
  void on_wake();
  void begin_exchange();
  void end_exchange();

  boost::beast::tcp_stream stream_;
  // Bytes that were read but not consumed yet, including the beginning of the next request.
  boost::beast::flat_buffer buffer_;
  // Expires only in wait_for_input(). It is cancelled to wake the waiting coroutine.
  boost::asio::steady_timer signal_;
  RequestHandler* handler_;
  const ServerOptions* options_;
  Events events_;
  // The answer in flight; the coroutine owns it.
  std::weak_ptr<AnswerSource> source_;
  HttpHeaders answer_headers_;  // for the answer to the current request
  // The request in progress, for its log line and its span.
  struct Exchange {
    std::string id, answer_id, method, path;
    unsigned status = 0;  // 0: nothing to report
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
  bool writing_ = false;         // a write of events is in flight
  bool was_backlogged_ = false;  // the last wake-up found too many pending bytes
  bool is_client_gone_ = false;
  bool body_cut_ = false;  // the body was cut off to make room for others
};

}  // namespace quire
