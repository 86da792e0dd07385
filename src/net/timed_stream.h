#pragma once
// A stream that waits until a deadline: the synchronous stream over which Boost.Beast reads and writes messages. It is not asynchronous
// because Beast's asynchronous streams take ten times as long to compile, and a thread that only fetches something does not need them.
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "net/stream.h"

namespace quire {

// Used by one thread. Functions return error codes; why() gives more detail.
class TimedStream {
 public:
  using Clock = std::chrono::steady_clock;
  using Code = boost::system::error_code;

  // The deadline does not limit the look-up of the host name.
  TimedStream(Clock::time_point deadline, NetAddress address, std::shared_ptr<const NetTls> tls,
              const std::function<bool(const sockaddr&)>& is_allowed_address = {})
      : deadline_(deadline), stream_(std::move(address), std::move(tls), is_allowed_address) {}

  // Moves the deadline, for a caller that limits the time without progress instead of the whole time.
  void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }

  // Waits until the stream is open. Returns asio::error::timed_out or connection_reset if it does not open.
  Code open();

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, Code& code) {
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != boost::asio::buffer_sequence_end(buffers); ++at)
      if (const boost::asio::mutable_buffer buffer(*at); buffer.size() > 0)
        return read({static_cast<std::byte*>(buffer.data()), buffer.size()}, code);
    code = {};
    return 0;
  }
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, Code& code) {
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != boost::asio::buffer_sequence_end(buffers); ++at)
      if (const boost::asio::const_buffer buffer(*at); buffer.size() > 0)
        return write({static_cast<const std::byte*>(buffer.data()), buffer.size()}, code);
    code = {};
    return 0;
  }
  // Beast requires these overloads, but no code calls them.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return checked([&](Code& code) { return read_some(buffers, code); });
  }
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return checked([&](Code& code) { return write_some(buffers, code); });
  }

  // Returns the reason why the stream is lost; empty: it is not lost.
  [[nodiscard]] const std::string& why() const { return stream_.lost_reason(); }

 private:
  template <class Step>
  std::size_t checked(Step step) {
    Code code;
    const std::size_t count = step(code);
    if (code) throw boost::system::system_error(code);
    return count;
  }
  std::size_t read(std::span<std::byte> into, Code& code);
  std::size_t write(std::span<const std::byte> from, Code& code);
  [[nodiscard]] bool is_over() const;
  // Waits until the socket is ready, or the deadline has passed.
  void wait(bool has_output);

  Clock::time_point deadline_;
  NetStream stream_;
};

}  // namespace quire
