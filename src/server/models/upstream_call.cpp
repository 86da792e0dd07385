// The coroutine sends one request over a new connection, and receives the response until it is complete or the client disconnects. It stops
// to read while the client has not taken enough of a stream, so that the model's server notices a client that reads slowly.
#include "server/models/upstream_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "server/http/awaitable.h"
#include "server/http/request_head.h"

namespace quire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kMaxHeadBytes = 256 << 10;
// Bytes of a stream that wait for the client. Less than ServerOptions::max_stream_buffer_bytes, above which a client counts as stalled.
constexpr std::size_t kMaxPendingBytes = 64 << 10;

// Returns false for headers about one connection, and for headers that this server sets itself.
bool is_passed_on(beast::string_view name) {
  constexpr const char* kOwn[] = {"Connection", "Keep-Alive",   "Transfer-Encoding",      "Content-Length",   "Content-Type",
                                  "Vary",       "X-Request-Id", "X-Content-Type-Options", "X-Accel-Buffering"};
  return std::ranges::none_of(kOwn, [&](const char* own) { return beast::iequals(own, name); });
}

std::string string_of(beast::string_view text) {
  return {text.data(), text.size()};
}

HttpResponse head_of(const http::response<GrowingBody>& message) {
  HttpResponse head;
  head.status = message.result_int();
  head.content_type = string_of(message[http::field::content_type]);
  for (const auto& field : message)
    if (is_passed_on(field.name_string())) head.headers.emplace_back(string_of(field.name_string()), string_of(field.value()));
  return head;
}

}  // namespace

UpstreamCall::UpstreamCall(asio::io_context& io, UpstreamRequest request, std::function<void()> on_change)
    : io_(&io),
      request_(std::move(request)),
      on_change_(std::move(on_change)),
      stream_(io),
      room_(io, asio::steady_timer::time_point::max()) {}

void UpstreamCall::start(std::uint16_t port) {
  asio::co_spawn(
      *io_, [self = shared_from_this(), port] { return self->run(port); },
      [self = shared_from_this()](const std::exception_ptr& failure) {
        if (failure) self->fail("the response could not be read");
      });
}

void UpstreamCall::abort() {
  is_aborted_ = true;
  on_change_ = nullptr;
  stream_.close();
  room_.cancel();
}

void UpstreamCall::set_state(State state) {
  state_ = state;
  if (on_change_) on_change_();
}

void UpstreamCall::fail(std::string why) {
  if (state_ == State::complete || state_ == State::failed) return;
  failure_ = std::move(why);
  set_state(State::failed);
}

std::string UpstreamCall::take_body() {
  room_.cancel();
  return std::exchange(body_, {});
}

asio::awaitable<void> UpstreamCall::run(std::uint16_t port) {
  boost::system::error_code code;
  co_await stream_.async_connect(tcp::endpoint(asio::ip::address_v4::loopback(), port), into(code));
  if (code) {
    fail(fmt::format("cannot connect to its process: {}", code.message()));
    co_return;
  }
  stream_.socket().set_option(tcp::no_delay(true), code);
  co_await send();
  co_await receive();
  stream_.close();
}

// An error is not reported here: the process may have answered without reading the whole body.
asio::awaitable<void> UpstreamCall::send() {
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n", request_.method, request_.target,
                                 stream_.socket().remote_endpoint().port());
  for (const auto& [name, value] : request_.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!request_.body.empty() || request_.method == "POST") head += fmt::format("Content-Length: {}\r\n", request_.body.size());
  head += "\r\n";
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(request_.body)};
  boost::system::error_code code;
  co_await asio::async_write(stream_, parts, into(code));
  request_ = {};
}

asio::awaitable<void> UpstreamCall::receive() {
  http::response_parser<GrowingBody> parser;
  parser.header_limit(kMaxHeadBytes);
  parser.body_limit(boost::none);
  parser.eager(true);
  beast::flat_buffer buffer;
  boost::system::error_code code;
  while (!parser.is_done()) {
    const std::size_t read = co_await stream_.async_read_some(buffer.prepare(kReadBytes), into(code));
    buffer.commit(read);
    const bool has_ended = code == asio::error::eof;
    if (code && !has_ended) break;
    code = {};
    while (buffer.size() > 0 && !code && !parser.is_done()) {
      const std::size_t used = parser.put(buffer.data(), code);
      buffer.consume(used);
      if (used == 0) break;
    }
    if (code == http::error::need_more) code = {};
    if (has_ended && !parser.got_some()) break;  // put_eof() would report a complete response
    if (!code && has_ended) parser.put_eof(code);
    if (code) break;
    if (parser.is_header_done() && state_ == State::waiting) {
      head_ = head_of(parser.get());
      is_stream_ = parser.chunked() || parser.need_eof();
      set_state(State::receiving);
    }
    if (auto& body = parser.get().body(); !body.empty()) {
      body_ += body;
      body.clear();
      if (is_stream_ && on_change_) on_change_();
    }
    while (is_stream_ && !is_aborted_ && body_.size() > kMaxPendingBytes) {
      boost::system::error_code ignored;
      co_await room_.async_wait(into(ignored));
    }
    if (is_aborted_) co_return;
  }
  if (parser.is_done())
    set_state(State::complete);
  else
    fail("its process ended the connection before the answer was complete");
}

}  // namespace quire
