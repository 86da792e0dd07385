// The coroutine of one connection, on the server's thread. In a loop, reads a request, passes it to the router, and writes the answer.
// Every wait has a timeout from the options, or ends when the client disconnects, the engine answers or the server stops; nothing blocks
// the thread. The memory that a client can use is limited: header, body (BodyBudget), pipelined bytes, and unread events.
// connection_read.cpp reads the requests.
#include "server/http/connection.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "server/http/awaitable.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

constexpr std::size_t kMaxPipelinedBytes = 16 << 10;

}  // namespace

Connection::Connection(tcp::socket socket, RequestHandler& handler, const ServerOptions& options, Events events)
    : stream_(std::move(socket)),
      buffer_(kBodyReadBytes + options.max_header_bytes),
      signal_(stream_.get_executor(), asio::steady_timer::time_point::max()),
      handler_(&handler),
      options_(&options),
      events_(std::move(events)) {
  boost::system::error_code code;
  const auto peer = stream_.socket().remote_endpoint(code);
  if (!code) peer_ = peer.address().to_string();
}

void Connection::start() {
  asio::co_spawn(
      stream_.get_executor(), [self = shared_from_this()] { return self->run(); },
      [self = shared_from_this()](const std::exception_ptr& failure) {
        if (failure) self->handler_->log().failed(self->exchange_.id, failure);
        self->close();
        self->events_.on_end();
      });
}

void Connection::close() {
  is_client_gone_ = true;
  boost::system::error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
  signal_.cancel();
}

void Connection::drain() {
  draining_ = true;
  if (idle_) close();
}

// In this file every co_await is a separate statement with named arguments, because g++ 12 miscompiles co_await in a loop condition, after
// a short-circuit operator, and next to aggregate temporaries.
Connection::Task<void> Connection::run() {
  bool more = true;
  while (more) {
    more = co_await serve_one();
    end_exchange();
  }
}

void Connection::begin_exchange() {
  exchange_ = {.id = handler_->next_request_id(),
               .answer_id = {},
               .method = {},
               .path = {},
               .status = 0,
               .error_code = {},
               .error_param = {},
               .tokens = {},
               .trace = {},
               .progress = {},
               .start = std::chrono::steady_clock::now()};
}

void Connection::end_exchange() {
  if (exchange_.status == 0) return;
  handler_->log().ended({.id = exchange_.id,
                         .answer_id = exchange_.answer_id,
                         .peer = peer_,
                         .method = exchange_.method,
                         .path = exchange_.path,
                         .trace = exchange_.trace ? &*exchange_.trace : nullptr,
                         .progress = exchange_.progress ? &*exchange_.progress : nullptr,
                         .status = exchange_.status,
                         .error_code = exchange_.error_code,
                         .error_param = exchange_.error_param,
                         .prompt_tokens = exchange_.tokens.prompt,
                         .cached_tokens = exchange_.tokens.cached,
                         .output_tokens = exchange_.tokens.output,
                         .duration = std::chrono::steady_clock::now() - exchange_.start});
  exchange_.status = 0;
}

Connection::Task<bool> Connection::serve_one() {
  HttpRequest request;
  std::optional<HttpResponse> refusal;
  bool alive = co_await read_request(request, refusal);
  if (!alive) co_return false;
  if (refusal) {
    const std::string refused = request.method;
    request = {};  // frees the memory of a refused body immediately
    alive = co_await send_response(refused, std::move(*refusal));
    events_.on_state(ConnectionState::idle);
    if (alive && !keep_alive_) co_await linger();
    co_return alive&& keep_alive_;
  }
  const std::string method = request.method;
  Reply reply = handler_->handle(request, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_wake();
  });
  request = {};  // the handler has moved out what the answer needs
  if (reply.pending != nullptr || reply.answer != nullptr) events_.on_state(ConnectionState::busy);
  while (reply.pending != nullptr) {
    alive = co_await wait_for_reply(reply);
    if (!alive) co_return false;
  }
  if (reply.answer != nullptr)
    alive = co_await answer(method, reply.answer);
  else
    alive = co_await send_response(method, std::move(reply.response));
  events_.on_state(ConnectionState::idle);
  co_return alive&& keep_alive_;
}

Connection::Task<bool> Connection::send_response(std::string_view method, HttpResponse response) {
  response = handler_->format_for_path(exchange_.path, std::move(response));
  ++handler_->stats().responses_total[response.status];
  exchange_.status = response.status;
  exchange_.error_code = std::move(response.error_code);
  exchange_.error_param = std::move(response.error_param);
  if (draining_) keep_alive_ = false;
  http::response<http::string_body> message(static_cast<http::status>(response.status), http_version_);
  if (!response.content_type.empty()) message.set(http::field::content_type, response.content_type);
  message.set("X-Content-Type-Options", "nosniff");
  message.set(kRequestId, exchange_.id);
  for (const auto& [name, value] : response.headers) message.set(name, value);
  for (const auto& [name, value] : answer_headers_) message.set(name, value);
  message.keep_alive(keep_alive_);
  message.body() = std::move(response.body);
  message.prepare_payload();
  if (method == "HEAD") message.body().clear();
  stream_.expires_after(std::chrono::milliseconds(options_->write_timeout_ms));
  boost::system::error_code code;
  if (method == "HEAD") {
    http::response_serializer<http::string_body> serializer(message);
    co_await http::async_write_header(stream_, serializer, into(code));
  } else {
    co_await http::async_write(stream_, message, into(code));
  }
  co_return !code;
}

Connection::Task<bool> Connection::answer(std::string_view method, const std::shared_ptr<AnswerSource>& source) {
  source_ = source;
  watch();
  if (const std::string ignored = source->ignored_fields(); !ignored.empty()) {
    handler_->log().ignored(exchange_.id, ignored);
    answer_headers_.emplace_back(kIgnoredFields, ignored);
  }
  bool sent = false;
  if (source->is_stream()) {
    sent = co_await send_stream(method, *source);
  } else {
    while (!is_client_gone_ && !source->finished()) co_await wait_for_signal();
    HttpResponse response;
    if (!is_client_gone_) {
      response = source->take_response();
      sent = co_await send_response(method, std::move(response));
    }
  }
  source_.reset();
  exchange_.tokens = source->num_tokens();
  exchange_.progress = source->progress();
  if (!sent) {
    exchange_.status = source->is_broken() ? 502 : kClientGone;
    if (!source->is_broken()) ++handler_->stats().clients_gone_total;
    source->abort();
    close();
  }
  co_await stop_watching();
  co_return sent && !is_client_gone_;
}

// Waits for the pending reply and stores it in `reply`. Returns false if the client has disconnected.
Connection::Task<bool> Connection::wait_for_reply(Reply& reply) {
  const std::shared_ptr<PendingReply> pending = std::move(reply.pending);
  watch();
  while (!is_client_gone_ && !pending->reply) co_await wait_for_signal();
  if (is_client_gone_) {
    ++handler_->stats().clients_gone_total;
    exchange_.status = kClientGone;
  }
  pending->cancelled = is_client_gone_;
  if (auto& ready = pending->reply) reply = std::move(*ready);
  co_await stop_watching();
  co_return !is_client_gone_;
}

Connection::Task<bool> Connection::send_stream_header(const AnswerSource& source) {
  ++handler_->stats().responses_total[200];
  exchange_.status = 200;
  if (draining_ || http_version_ < 11) keep_alive_ = false;
  http::response<http::empty_body> header(http::status::ok, http_version_);
  const std::string_view content_type = source.stream_content_type();
  header.set(http::field::content_type, content_type);
  header.set(http::field::cache_control, "no-cache");
  header.set("X-Accel-Buffering", "no");
  for (const auto& [name, value] : source.stream_headers()) header.set(name, value);
  for (const auto& [name, value] : answer_headers_) header.set(name, value);
  header.set(kRequestId, exchange_.id);
  header.keep_alive(keep_alive_);
  header.chunked(http_version_ >= 11);
  http::response_serializer<http::empty_body> serializer(header);
  boost::system::error_code code;
  stream_.expires_after(std::chrono::milliseconds(options_->write_timeout_ms));
  co_await http::async_write_header(stream_, serializer, into(code));
  co_return !code;
}

Connection::Task<bool> Connection::send_events(std::string events, bool last) {
  // HTTP/1.0 has no chunks: closing the connection ends the stream.
  std::string bytes = http_version_ >= 11 && !events.empty() ? fmt::format("{:x}\r\n{}\r\n", events.size(), events) : std::move(events);
  if (last && http_version_ >= 11) bytes += "0\r\n\r\n";
  boost::system::error_code code;
  stream_.expires_after(std::chrono::milliseconds(options_->write_timeout_ms));
  writing_ = true;
  co_await asio::async_write(stream_, asio::buffer(bytes), into(code));
  writing_ = was_backlogged_ = false;
  co_return !code;
}

Connection::Task<bool> Connection::send_stream(std::string_view method, AnswerSource& source) {
  while (!is_client_gone_ && source.may_be_refused()) co_await wait_for_signal();
  if (!is_client_gone_ && source.refused()) co_return co_await send_response(method, source.take_response());
  bool alive = co_await send_stream_header(source);
  if (!alive) co_return false;
  while (!is_client_gone_) {
    // Events that arrived during the last write are sent together.
    std::string events = source.take_events();
    const bool last = source.finished() && !source.is_broken();
    if (source.is_broken() && events.empty()) co_return false;
    if (events.empty() && !last) {
      if (source.waiting_since())
        co_await wait_for_input(source);
      else
        co_await wait_for_signal();
      continue;
    }
    alive = co_await send_events(std::move(events), last);
    if (!alive) co_return false;
    if (last) co_return true;
  }
  co_return false;
}

void Connection::on_wake() {
  const auto source = source_.lock();
  // The events of one step may be large. They count as a backlog only if the client has still not read them when the next step's events
  // arrive.
  const bool is_backlogged =
      source != nullptr && writing_ && source->num_pending_bytes() > options_->max_stream_buffer_bytes + source->num_echo_bytes();
  // Further steps may arrive before the answer ends.
  if (is_backlogged && was_backlogged_ && !std::exchange(is_stalled_, true)) {
    ++handler_->stats().clients_stalled_total;
    close();
  }
  was_backlogged_ = is_backlogged;
  signal_.cancel();
}

// Waits for the next wake-up. Every wake-up changes a state that the waiting loop checks, so a wake-up before this wait is not lost.
Connection::Task<void> Connection::wait_for_signal() {
  boost::system::error_code ignored;
  co_await signal_.async_wait(into(ignored));
}

Connection::Task<void> Connection::wait_for_input(AnswerSource& source) {
  const auto timeout = std::chrono::milliseconds(options_->session_timeout_ms);
  const auto since = source.waiting_since();
  if (since) signal_.expires_at(*since + timeout);
  co_await wait_for_signal();
  signal_.expires_at(asio::steady_timer::time_point::max());
  if (since && source.waiting_since() == since && std::chrono::steady_clock::now() >= *since + timeout) source.time_out();
}

// Reads the bytes that arrive, such as the client's next request, into the buffer. An error or the end of the stream means that the client
// has disconnected.
void Connection::watch() {
  if (buffer_.size() >= kMaxPipelinedBytes) return;
  watching_ = true;
  stream_.socket().async_read_some(buffer_.prepare(kIdleReadBytes),
                                   [self = shared_from_this()](boost::system::error_code code, std::size_t read) {
                                     self->watching_ = false;
                                     self->buffer_.commit(read);
                                     if (code && code != asio::error::operation_aborted) {
                                       self->is_client_gone_ = true;
                                       // A write to this client would never complete.
                                       if (const auto source = self->source_.lock()) self->close();
                                     } else if (!code && !self->stop_watching_) {
                                       self->watch();
                                     }
                                     self->signal_.cancel();
                                   });
}

Connection::Task<void> Connection::stop_watching() {
  stop_watching_ = true;
  boost::system::error_code ignored;
  if (watching_) stream_.socket().cancel(ignored);
  while (watching_) co_await wait_for_signal();
  stop_watching_ = false;
}

}  // namespace quire
