// Reads the requests of a connection: header, body, and the remaining bytes of a refused client. Part of Connection's coroutine
// (connection.cpp), on the server's thread. Header and body have limits and timeouts. The bytes of a body are charged to the BodyBudget.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/connection.h"
#include "server/http/request_guard.h"
#include "server/http/request_head.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

constexpr std::size_t kHeaderReadBytes = 4 << 10;
// A body makes progress each time it has grown by this many bytes. Connections without progress are closed first.
constexpr std::size_t kProgressBytes = 4 << 10;
constexpr std::string_view kHeaderEnd = "\r\n\r\n";
constexpr std::size_t kLingerReadBytes = 8 << 10;
constexpr std::size_t kMaxLingerBytes = 1 << 20;

std::string_view view_of(asio::const_buffer bytes) {
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Connection::Task<bool> Connection::wait_for_data() {
  if (buffer_.size() > 0) co_return true;
  boost::system::error_code code;
  buffer_.shrink_to_fit();
  stream_.expires_after(std::chrono::milliseconds(options_->idle_timeout_ms));
  const std::size_t read = co_await stream_.async_read_some(buffer_.prepare(kIdleReadBytes), into(code));
  buffer_.commit(read);
  co_return !code;
}

Connection::Task<bool> Connection::read_request(HttpRequest& request, std::optional<HttpResponse>& refusal) {
  idle_ = true;
  if (draining_) co_return false;
  bool alive = co_await wait_for_data();
  if (!alive) co_return false;
  idle_ = false;
  begin_exchange();
  RequestParser parser;
  alive = co_await read_header(parser, request, refusal);
  if (!alive || refusal) co_return alive;
  events_.on_state(ConnectionState::receiving);
  refusal = handler_->answer_early(request);
  if (!refusal) {
    request.client = handler_->client_of(request);
    events_.on_client(request.client);
    if (request.has_body) alive = co_await read_body(parser, request, refusal);
    if (alive && !refusal && !handler_->is_operator_request(request) && !events_.has_room()) {
      refusal = too_many_answers_response(*options_);
      co_return true;
    }
  }
  // The connection must close, because the unread body would be read as the next request.
  if (refusal && request.has_body) keep_alive_ = false;
  co_return alive;
}

Connection::Task<std::size_t> Connection::receive_header(std::optional<HttpResponse>& refusal) {
  boost::system::error_code code;
  stream_.expires_after(std::chrono::milliseconds(options_->header_timeout_ms));
  std::size_t looked = 0;
  while (true) {
    const std::string_view text = view_of(buffer_.data());
    const std::size_t end = text.find(kHeaderEnd, looked - std::min<std::size_t>(looked, 3));
    const std::size_t size = end == std::string_view::npos ? text.size() : end + kHeaderEnd.size();
    if (size > options_->max_header_bytes) {
      refusal = read_error_response(http::error::header_limit, {}, *options_);
      co_return 0;
    }
    if (end != std::string_view::npos) co_return size;
    looked = text.size();
    const std::size_t read = co_await stream_.async_read_some(buffer_.prepare(kHeaderReadBytes), into(code));
    buffer_.commit(read);
    if (code) co_return 0;
  }
}

Connection::Task<bool> Connection::read_header(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal) {
  answer_headers_.clear();
  keep_alive_ = false;
  const std::size_t size = co_await receive_header(refusal);
  if (size == 0) co_return refusal.has_value();
  const std::string_view header = view_of(buffer_.data()).substr(0, size);
  if (const std::string problem = framing_problem(header); !problem.empty()) {
    refusal = not_http_response(problem);
    co_return true;
  }
  boost::system::error_code code;
  parser.header_limit(options_->max_header_bytes);
  parser.body_limit(boost::none);  // read_body() checks the limit
  buffer_.consume(parser.put(asio::buffer(header), code));
  if (!code && !parser.is_header_done()) code = http::error::bad_field;
  refusal = read_error_response(code, parser.get(), *options_);
  if (refusal) co_return true;
  request.id = request.unique_id = exchange_.id;
  fill_request_head(parser, stream_.socket(), *options_, request);
  exchange_.id = request.id;
  if (!take_absolute_form(request)) {
    refusal = not_http_response("its target is neither a path nor a URL");
    co_return true;
  }
  exchange_.answer_id = request.answer_id();
  keep_alive_ = parser.get().keep_alive();
  exchange_.method = request.method;
  exchange_.trace = request.trace;
  exchange_.path = request.path();
  http_version_ = parser.get().version();
  answer_headers_ = cors_headers(request, *options_);
  co_return true;
}

Connection::Task<bool> Connection::read_body(RequestParser& parser, HttpRequest& request, std::optional<HttpResponse>& refusal) {
  if (parser.content_length().value_or(0) > options_->max_body_bytes) {
    refusal = body_too_large_response(*options_);
    co_return true;
  }
  if (parser.get()[http::field::expect] == "100-continue") {
    const bool alive = co_await send_continue();
    if (!alive) co_return false;
  }
  BodyBudget& budget = handler_->body_budget();
  auto lease = std::make_shared<BodyBudget::Lease>(budget, budget.share_of(request.client));
  const bool alive = co_await receive_body(parser, *lease, refusal);
  request.body = std::move(parser.get().body());
  request.body_lease = std::move(lease);
  co_return alive;
}

// Reads the body and charges its bytes to the budget as they arrive, so an announced body that never arrives costs only its connection.
Connection::Task<bool> Connection::receive_body(RequestParser& parser, BodyBudget::Lease& lease, std::optional<HttpResponse>& refusal) {
  using Clock = BodyPace::Clock;
  BodyPace pace(options_->min_body_rate, std::chrono::milliseconds(options_->body_grace_ms), Clock::now());
  body_cut_ = false;
  const BodyReaders::Entry entry(handler_->body_readers(), {lease, pace, [this] {
                                                              body_cut_ = true;
                                                              ++handler_->stats().bodies_cut_total;
                                                              stream_.cancel();
                                                            }});
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(options_->body_timeout_ms);
  parser.body_limit(options_->max_body_bytes);
  parser.eager(true);
  boost::system::error_code code;
  std::size_t told = 0;
  bool wants_more = buffer_.size() == 0;
  while (!parser.is_done()) {
    if (wants_more) {
      const std::size_t most = parser.get().body().size() < kHeaderReadBytes ? kHeaderReadBytes : kBodyReadBytes;
      stream_.expires_at(std::min(deadline, pace.ends()));
      const std::size_t read =
          co_await stream_.async_read_some(buffer_.prepare(std::min(most, buffer_.max_size() - buffer_.size())), into(code));
      buffer_.commit(read);
      if (body_cut_) refusal = body_too_slow_response();
      if (body_cut_ || code) co_return body_cut_;
    }
    const std::size_t before = parser.get().body().size();
    const std::size_t used = parser.put(buffer_.data(), code);
    buffer_.consume(used);
    const std::size_t size = parser.get().body().size();
    wants_more = code == http::error::need_more || used == 0 || buffer_.size() == 0;
    if (code == http::error::need_more) code = {};
    // The buffer is full, but the header of a chunk has no end.
    if (wants_more && buffer_.size() == buffer_.max_size()) code = http::error::bad_chunk;
    pace.add(size - before, Clock::now());
    if (!code && !handler_->body_readers().grow(lease, size, Clock::now())) refusal = too_many_bodies_response(*options_);
    if (code) refusal = read_error_response(code, parser.get(), *options_);
    if (refusal) co_return true;
    if (size - told < kProgressBytes) continue;
    told = size;
    events_.on_state(ConnectionState::receiving);
  }
  co_return true;
}

Connection::Task<bool> Connection::send_continue() {
  boost::system::error_code code;
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  co_await asio::async_write(stream_, asio::buffer(kContinue), into(code));
  co_return !code;
}

// Discards what a refused client still sends. Closing immediately would reset the connection before the client has read the answer.
Connection::Task<void> Connection::linger() {
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

}  // namespace quire
