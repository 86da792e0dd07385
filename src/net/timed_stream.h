#pragma once
// A stream that waits, until a point in time: the synchronous one that Boost.Beast reads and writes messages over. Its asynchronous ones
// take ten times as long to compile, and who fetches something on a thread of its own has no use for them.
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "net/stream.h"

namespace quire {

// One thread. What goes wrong is told by error codes, which say less than why().
class TimedStream {
 public:
  using Clock = std::chrono::steady_clock;
  using Code = boost::system::error_code;

  // The look-up of a host's name is not within that time.
  TimedStream(Clock::time_point deadline, NetAddress address, std::shared_ptr<const NetTls> tls,
              const std::function<bool(const sockaddr&)>& reaches = {})
      : deadline_(deadline), stream_(std::move(address), std::move(tls), reaches) {}

  // Waits until it is open. asio::error::timed_out, connection_reset.
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
  // As Beast asks of a stream; nobody calls them.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return checked([&](Code& code) { return read_some(buffers, code); });
  }
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return checked([&](Code& code) { return write_some(buffers, code); });
  }

  // Why it is lost; empty: it is not.
  [[nodiscard]] const std::string& why() const { return stream_.why_lost(); }

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
  // Until something can be done, or the time is over.
  void wait(bool has_output);

  Clock::time_point deadline_;
  NetStream stream_;
};

}  // namespace quire
