// One connection's coroutine on the server's thread: it reads a request, has the router answer it, writes the answer, and begins again.
// Every wait has a timeout of the options, or ends when the client goes, the engine answers, or the server stops; nothing blocks the
// thread. What a client can make it keep is bounded: header, body (BodyBudget), what it sends ahead, and events that it does not read.
#include "server/http/session.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "server/http/request_guard.h"
#include "server/http/request_head.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

// Thousands of connections may be idle, so waiting for a request costs little memory.
constexpr std::size_t kIdleReadBytes = 512;
constexpr std::size_t kBodyReadBytes = 64 << 10;
constexpr std::size_t kMaxPipelinedBytes = 16 << 10;
constexpr std::size_t kLingerReadBytes = 8 << 10;
constexpr std::size_t kMaxLingerBytes = 1 << 20;

auto into(boost::system::error_code& code) {
  return asio::redirect_error(asio::use_awaitable, code);
}

}  // namespace

Session::Session(tcp::socket socket, RequestHandler& handler, const ServerOptions& options, Events events)
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

void Session::start() {
  asio::co_spawn(
      stream_.get_executor(), [self = shared_from_this()] { return self->run(); },
      [self = shared_from_this()](const std::exception_ptr& failure) {
        if (failure) self->handler_->log().failed(self->exchange_.id, failure);
        self->close();
        self->events_.on_end();
      });
}

void Session::close() {
  gone_ = true;
  boost::system::error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
  signal_.cancel();
}

void Session::drain() {
  draining_ = true;
  if (idle_) close();
}

// g++ 12 miscompiles co_await in the condition of a loop, behind a short-circuit and beside aggregate temporaries, so in this file every
// awaited call stands alone and takes named arguments.
Session::Task<void> Session::run() {
  bool more = true;
  while (more) {
    more = co_await serve_one();
    end_exchange();
  }
}

void Session::begin_exchange() {
  exchange_ = {.id = handler_->next_request_id(),
               .method = {},
               .path = {},
               .status = 0,
               .tokens = {},
               .trace = {},
               .progress = {},
               .start = std::chrono::steady_clock::now()};
}

void Session::end_exchange() {
  if (exchange_.status == 0) return;
  handler_->log().ended({.id = exchange_.id,
                         .peer = peer_,
                         .method = exchange_.method,
                         .path = exchange_.path,
                         .trace = exchange_.trace ? &*exchange_.trace : nullptr,
                         .progress = exchange_.progress ? &*exchange_.progress : nullptr,
                         .status = exchange_.status,
                         .prompt_tokens = exchange_.tokens.prompt,
                         .cached_tokens = exchange_.tokens.cached,
                         .output_tokens = exchange_.tokens.output,
                         .duration = std::chrono::steady_clock::now() - exchange_.start});
  exchange_.status = 0;
}

Session::Task<bool> Session::serve_one() {
  HttpRequest request;
  std::optional<HttpResponse> refusal;
  bool alive = co_await read_request(request, refusal);
  if (!alive) co_return false;
  if (refusal) {
    alive = co_await send_response(request.method, std::move(*refusal));
    events_.on_state(ConnectionState::idle);
    if (alive && !keep_alive_) co_await linger();
    co_return alive&& keep_alive_;
  }
  const std::string method = request.method;
  Reply reply = handler_->handle(request, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_wake();
  });
  request = {};  // what an answer under way needs of it has been taken
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

Session::Task<bool> Session::wait_for_data() {
  if (buffer_.size() > 0) co_return true;
  boost::system::error_code code;
  buffer_.shrink_to_fit();
  stream_.expires_after(std::chrono::milliseconds(options_->idle_timeout_ms));
  const std::size_t read = co_await stream_.async_read_some(buffer_.prepare(kIdleReadBytes), into(code));
  buffer_.commit(read);
  co_return !code;
}

Session::Task<bool> Session::read_request(HttpRequest& request, std::optional<HttpResponse>& refusal) {
  idle_ = true;
  if (draining_) co_return false;
  bool alive = co_await wait_for_data();
  if (!alive) co_return false;
  idle_ = false;
  begin_exchange();
  RequestParser parser;
  alive = co_await read_header(parser, request, refusal);
  if (!alive || refusal) co_return alive;
  events_.on_state(ConnectionState::busy);
  refusal = handler_->answer_early(request);
  if (refusal || !request.has_body) {
    // What was not read stands before the next request.
    if (request.has_body) keep_alive_ = false;
    co_return true;
  }
  alive = co_await read_body(parser, request, refusal);
  if (refusal) keep_alive_ = false;
  co_return alive;
}

Session::Task<bool> Session::read_header(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal) {
  answer_headers_.clear();
  parser.header_limit(options_->max_header_bytes);
  parser.body_limit(boost::none);  // read_body() knows it
  boost::system::error_code code;
  stream_.expires_after(std::chrono::milliseconds(options_->header_timeout_ms));
  co_await http::async_read_header(stream_, buffer_, parser, into(code));
  refusal = refusal_of(code, parser.get(), *options_);
  keep_alive_ = !refusal && parser.get().keep_alive();
  if (!code && !refusal) {
    request.id = exchange_.id;
    take_head(parser, stream_.socket(), *options_, request);
    exchange_.id = request.id;
    exchange_.method = request.method;
    exchange_.trace = request.trace;
    exchange_.path = request.path();
    http_version_ = parser.get().version();
    answer_headers_ = cors_headers(request, *options_);
  }
  co_return !code || refusal;
}

Session::Task<bool> Session::read_body(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal) {
  const std::uint64_t length = parser.content_length().value_or(0);
  auto lease = std::make_shared<BodyBudget::Lease>(handler_->body_budget());
  if (length > options_->max_body_bytes)
    refusal = too_large_a_body(*options_);
  else if (!lease->grow_to(length))
    refusal = too_many_bodies(*options_);
  if (refusal) co_return true;
  if (parser.get()[http::field::expect] == "100-continue") {
    const bool alive = co_await send_continue();
    if (!alive) co_return false;
  }
  boost::system::error_code code;
  parser.body_limit(options_->max_body_bytes);
  parser.eager(true);
  // Of a chunked body the length shows as it comes. Each chunk pays before it is read: a read goes on over any number of them.
  bool is_unpaid = false;
  auto pay = [&](std::uint64_t size, beast::string_view /*extensions*/, boost::system::error_code& failed) {
    if (size > options_->max_body_bytes || lease->grow_to(parser.get().body().size() + size)) return;
    is_unpaid = true;
    failed = http::error::body_limit;
  };
  parser.on_chunk_header(pay);
  buffer_.reserve(kBodyReadBytes);
  stream_.expires_after(std::chrono::milliseconds(options_->body_timeout_ms));
  while (!code && !parser.is_done()) co_await http::async_read_some(stream_, buffer_, parser, into(code));
  if (code) refusal = is_unpaid ? too_many_bodies(*options_) : refusal_of(code, parser.get(), *options_);
  request.body = std::move(parser.get().body());
  request.body_lease = std::move(lease);
  co_return !code || refusal;
}

Session::Task<bool> Session::send_continue() {
  boost::system::error_code code;
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  co_await asio::async_write(stream_, asio::buffer(kContinue), into(code));
  co_return !code;
}

// The client may still be sending: closing at once would reset the connection before it has read the answer.
Session::Task<void> Session::linger() {
  boost::system::error_code code;
  stream_.socket().shutdown(tcp::socket::shutdown_send, code);
  stream_.expires_after(std::chrono::seconds(2));
  std::size_t total = 0;
  buffer_.clear();
  while (!code && total < kMaxLingerBytes) {
    const std::size_t read = co_await stream_.async_read_some(buffer_.prepare(kLingerReadBytes), into(code));
    total += read;
  }
}

Session::Task<bool> Session::send_response(std::string_view method, HttpResponse response) {
  response = handler_->in_shape_of(exchange_.path, std::move(response));
  ++handler_->stats().responses_total[response.status];
  exchange_.status = response.status;
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

Session::Task<bool> Session::answer(std::string_view method, const std::shared_ptr<AnswerSource>& source) {
  source_ = source;
  watch();
  if (const std::string ignored = source->ignored_fields(); !ignored.empty()) {
    handler_->log().ignored(exchange_.id, ignored);
    answer_headers_.emplace_back("X-Quire-Ignored-Fields", ignored);
  }
  bool sent = false;
  if (source->is_stream()) {
    sent = co_await send_stream(*source);
  } else {
    while (!gone_ && !source->finished()) co_await wait_for_signal();
    HttpResponse response;
    if (!gone_) {
      response = source->take_response();
      sent = co_await send_response(method, std::move(response));
    }
  }
  source_.reset();
  exchange_.tokens = source->num_tokens();
  exchange_.progress = source->progress();
  if (!sent) {
    exchange_.status = kClientGone;
    ++handler_->stats().clients_gone_total;
    source->abort();
    close();
  }
  co_await stop_watching();
  co_return sent && !gone_;
}

// Puts what was pending into its place.
Session::Task<bool> Session::wait_for_reply(Reply& reply) {
  const std::shared_ptr<PendingReply> pending = std::move(reply.pending);
  watch();
  while (!gone_ && !pending->reply) co_await wait_for_signal();
  if (gone_) {
    ++handler_->stats().clients_gone_total;
    exchange_.status = kClientGone;
  }
  pending->cancelled = gone_;
  if (auto& ready = pending->reply) reply = std::move(*ready);
  co_await stop_watching();
  co_return !gone_;
}

Session::Task<bool> Session::send_stream_header() {
  ++handler_->stats().responses_total[200];
  exchange_.status = 200;
  if (draining_ || http_version_ < 11) keep_alive_ = false;
  http::response<http::empty_body> header(http::status::ok, http_version_);
  header.set(http::field::content_type, "text/event-stream; charset=utf-8");
  header.set(http::field::cache_control, "no-cache");
  header.set("X-Accel-Buffering", "no");
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

Session::Task<bool> Session::send_events(std::string events, bool last) {
  // HTTP/1.0 has no chunks: the end of the connection ends the stream.
  std::string bytes = http_version_ >= 11 && !events.empty() ? fmt::format("{:x}\r\n{}\r\n", events.size(), events) : std::move(events);
  if (last && http_version_ >= 11) bytes += "0\r\n\r\n";
  boost::system::error_code code;
  stream_.expires_after(std::chrono::milliseconds(options_->write_timeout_ms));
  writing_ = true;
  co_await asio::async_write(stream_, asio::buffer(bytes), into(code));
  writing_ = was_behind_ = false;
  co_return !code;
}

Session::Task<bool> Session::send_stream(AnswerSource& source) {
  while (!gone_ && source.may_be_refused()) co_await wait_for_signal();
  if (!gone_ && source.refused()) co_return co_await send_response("POST", source.take_response());
  bool alive = co_await send_stream_header();
  if (!alive) co_return false;
  while (!gone_) {
    // What came while the last write was under way goes out as one.
    std::string events = source.take_events();
    const bool last = source.finished();
    if (events.empty() && !last) {
      if (source.waits_since())
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

void Session::on_wake() {
  const auto source = source_.lock();
  // One step's events may be large; a client that takes what it gets has taken them when the next step's come.
  const bool behind =
      source != nullptr && writing_ && source->num_pending_bytes() > options_->max_stream_buffer_bytes + source->num_echo_bytes();
  if (behind && was_behind_) {
    ++handler_->stats().clients_stalled_total;
    close();
  }
  was_behind_ = behind;
  signal_.cancel();
}

// Every wake-up changes a state that the waiting loop looks at, so one that comes too early is not lost.
Session::Task<void> Session::wait_for_signal() {
  boost::system::error_code ignored;
  co_await signal_.async_wait(into(ignored));
}

Session::Task<void> Session::wait_for_input(AnswerSource& source) {
  const auto timeout = std::chrono::milliseconds(options_->session_timeout_ms);
  const auto since = source.waits_since();
  if (since) signal_.expires_at(*since + timeout);
  co_await wait_for_signal();
  signal_.expires_at(asio::steady_timer::time_point::max());
  if (since && source.waits_since() == since && std::chrono::steady_clock::now() >= *since + timeout) source.time_out();
}

// Reads whatever comes (the client's next request) into the buffer; an error or the end of the stream means that the client has gone.
void Session::watch() {
  if (buffer_.size() >= kMaxPipelinedBytes) return;
  watching_ = true;
  stream_.socket().async_read_some(buffer_.prepare(kIdleReadBytes),
                                   [self = shared_from_this()](boost::system::error_code code, std::size_t read) {
                                     self->watching_ = false;
                                     self->buffer_.commit(read);
                                     if (code && code != asio::error::operation_aborted) {
                                       self->gone_ = true;
                                       // A write that waits for this client would wait for nothing.
                                       if (const auto source = self->source_.lock()) self->close();
                                     } else if (!code && !self->stop_watching_) {
                                       self->watch();
                                     }
                                     self->signal_.cancel();
                                   });
}

Session::Task<void> Session::stop_watching() {
  stop_watching_ = true;
  boost::system::error_code ignored;
  if (watching_) stream_.socket().cancel(ignored);
  while (watching_) co_await wait_for_signal();
  stop_watching_ = false;
}

}  // namespace quire
