#include "net/timed_stream.h"

#include <poll.h>

#include <algorithm>
#include <limits>

namespace quire {

namespace errors = boost::asio::error;

bool TimedStream::is_over() const {
  return Clock::now() >= deadline_;
}

void TimedStream::wait(bool has_output) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
  pollfd polled{.fd = stream_.descriptor(), .events = stream_.events(has_output), .revents = 0};
  poll(&polled, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max())));
}

TimedStream::Code TimedStream::open() {
  for (; !is_over(); wait(false)) {
    const NetStream::State state = stream_.advance();
    if (state == NetStream::State::open) return {};
    if (state == NetStream::State::lost) return errors::connection_reset;
  }
  return errors::timed_out;
}

// Reads at least one byte, unless `code` is an error afterwards. Checks the deadline before each read, even if there is always something to
// read.
std::size_t TimedStream::read(std::span<std::byte> into, Code& code) {
  for (; !is_over(); wait(false)) {
    const std::ptrdiff_t num_read = stream_.read(into);
    code = {};
    if (num_read < 0) code = stream_.has_ended() ? Code(errors::eof) : Code(errors::connection_reset);
    if (num_read != 0) return num_read > 0 ? static_cast<std::size_t>(num_read) : 0;
  }
  code = errors::timed_out;
  return 0;
}

std::size_t TimedStream::write(std::span<const std::byte> from, Code& code) {
  for (; !is_over(); wait(true)) {
    const std::ptrdiff_t num_written = stream_.write(from);
    code = {};
    if (num_written < 0) code = errors::connection_reset;
    if (num_written != 0) return num_written > 0 ? static_cast<std::size_t>(num_written) : 0;
  }
  code = errors::timed_out;
  return 0;
}

}  // namespace quire
