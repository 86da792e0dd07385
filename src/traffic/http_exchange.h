#pragma once
// One HTTP request and its answer over a stream that never waits. Many exchanges run on one thread, which polls their descriptors.
#include <poll.h>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/stream.h"

namespace quire {

// Used by one thread. The server is not trusted. An answer may have at most 256 MiB.
class HttpExchange {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { running, done, failed };
  // Receives a part of the answer's body, without chunk headers, and the time at which it was read.
  using TakeBody = std::function<void(std::string_view body, Clock::time_point now)>;

  // `request` has the bytes of the whole request. The stream may still be connecting.
  HttpExchange(std::unique_ptr<NetStream> stream, std::string request);

  // Continues as far as possible without waiting.
  State advance(const TakeBody& take_body);
  // Returns the descriptor and the events to wait for.
  [[nodiscard]] pollfd polled() const;

  // Returns the status of the answer; 0 before its headers are complete.
  [[nodiscard]] unsigned status() const;
  // Returns true once a byte of the answer has arrived.
  [[nodiscard]] bool has_answer() const { return has_answer_; }
  // Returns the reason of the failure.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] const std::string& request() const { return request_; }
  [[nodiscard]] const NetStream& stream() const { return *stream_; }
  // Returns the stream for another exchange; null if the server closes it, or if the exchange is not done.
  std::unique_ptr<NetStream> take_stream();

 private:
  State write();
  State read(const TakeBody& take_body);
  State parse(std::string_view bytes, Clock::time_point now, const TakeBody& take_body);
  State end_of_stream(const TakeBody& take_body);
  State fail(std::string reason);
  void deliver(Clock::time_point now, const TakeBody& take_body);

  std::unique_ptr<NetStream> stream_;
  std::string request_;
  std::size_t num_sent_ = 0;
  std::string unparsed_;
  boost::beast::http::response_parser<boost::beast::http::string_body> parser_;
  State state_ = State::running;
  bool has_answer_ = false;
  std::string failure_;
};

}  // namespace quire
