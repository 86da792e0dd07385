// Sends a request and parses the answer with Boost.Beast's parser, which needs no I/O. advance() is called when poll() reports the
// descriptor, on the thread of the load run or of a command.
#include "traffic/http_exchange.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <cstddef>
#include <span>
#include <utility>

namespace quire {
namespace {

constexpr std::uint32_t kMaxHeaderBytes = 64 << 10;
constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{256} << 20U;
constexpr std::size_t kReadBytes = 16 << 10;

}  // namespace

HttpExchange::HttpExchange(std::unique_ptr<NetStream> stream, std::string request)
    : stream_(std::move(stream)), request_(std::move(request)) {
  parser_.header_limit(kMaxHeaderBytes);
  parser_.body_limit(kMaxAnswerBytes);
  parser_.eager(true);
}

HttpExchange::State HttpExchange::advance(const TakeBody& take_body) {
  if (state_ != State::running) return state_;
  switch (stream_->advance()) {
    case NetStream::State::opening:
      return state_;
    case NetStream::State::lost:
      return fail(stream_->lost_reason());
    case NetStream::State::open:
      break;
  }
  // An answer may arrive before the request is complete, for instance if the server refuses a large body.
  return write() == State::running ? read(take_body) : state_;
}

pollfd HttpExchange::polled() const {
  return {.fd = stream_->descriptor(), .events = stream_->events(num_sent_ < request_.size()), .revents = 0};
}

unsigned HttpExchange::status() const {
  return parser_.is_header_done() ? parser_.get().result_int() : 0;
}

std::unique_ptr<NetStream> HttpExchange::take_stream() {
  const bool is_reusable = state_ == State::done && unparsed_.empty() && parser_.keep_alive() && !parser_.need_eof() &&
                           num_sent_ == request_.size() && stream_->advance() == NetStream::State::open;
  return is_reusable ? std::move(stream_) : nullptr;
}

HttpExchange::State HttpExchange::write() {
  while (num_sent_ < request_.size()) {
    const std::ptrdiff_t num_written = stream_->write(std::as_bytes(std::span(request_).subspan(num_sent_)));
    if (num_written < 0) return fail(fmt::format("the connection was lost: {}", stream_->lost_reason()));
    if (num_written == 0) break;
    num_sent_ += static_cast<std::size_t>(num_written);
  }
  return state_;
}

HttpExchange::State HttpExchange::read(const TakeBody& take_body) {
  std::array<std::byte, kReadBytes> buffer;
  while (state_ == State::running) {
    const std::ptrdiff_t num_read = stream_->read(buffer);
    if (num_read == 0) break;
    if (num_read < 0) return end_of_stream(take_body);
    has_answer_ = true;
    parse({reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(num_read)}, Clock::now(), take_body);
  }
  return state_;
}

HttpExchange::State HttpExchange::parse(std::string_view bytes, Clock::time_point now, const TakeBody& take_body) {
  unparsed_ += bytes;
  for (std::size_t num_used = 1; num_used > 0 && !unparsed_.empty() && !parser_.is_done();) {
    boost::system::error_code code;
    num_used = parser_.put(boost::asio::const_buffer(unparsed_.data(), unparsed_.size()), code);
    unparsed_.erase(0, num_used);
    deliver(now, take_body);
    if (code == boost::beast::http::error::need_more) return state_;
    if (code == boost::beast::http::error::body_limit) return fail("the answer has more than 256 MiB");
    if (code) return fail(fmt::format("the answer is not HTTP: {}", code.message()));
  }
  if (parser_.is_done()) state_ = State::done;
  return state_;
}

void HttpExchange::deliver(Clock::time_point now, const TakeBody& take_body) {
  std::string& body = parser_.get().body();
  if (!body.empty()) take_body(body, now);
  body.clear();
}

HttpExchange::State HttpExchange::end_of_stream(const TakeBody& take_body) {
  if (!stream_->has_ended()) return fail(fmt::format("the connection was lost: {}", stream_->lost_reason()));
  if (!has_answer_) return fail("the connection was closed without an answer");
  boost::system::error_code code;
  if (parser_.is_header_done()) parser_.put_eof(code);
  if (code || !parser_.is_done()) return fail("the connection was closed before the end of the answer");
  deliver(Clock::now(), take_body);
  return state_ = State::done;
}

HttpExchange::State HttpExchange::fail(std::string reason) {
  failure_ = std::move(reason);
  return state_ = State::failed;
}

}  // namespace quire
