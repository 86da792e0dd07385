#include "runtime/remote/peer_frame_stream.h"

namespace quire {

bool PeerFrameStream::advance() {
  if (is_lost()) return false;
  const NetStream::State state = stream_->advance();
  if (state == NetStream::State::opening) return true;
  is_lost_ = state == NetStream::State::lost || !write() || !read();
  return !is_lost();
}

bool PeerFrameStream::write() {
  while (has_output()) {
    const std::ptrdiff_t num_written = stream_->write(std::span(out_).subspan(out_at_));
    if (num_written < 0) return false;
    if (num_written == 0) return true;
    out_at_ += static_cast<std::size_t>(num_written);
  }
  out_.clear();
  out_at_ = 0;
  return true;
}

// Reads bytes into the parser's buffer. If the buffer is full because a whole frame was not taken yet, the bytes stay in the socket.
bool PeerFrameStream::read() {
  const std::span<std::byte> room = frames_.room();
  if (room.empty()) return true;
  const std::ptrdiff_t num_read = stream_->read(room);
  if (num_read > 0) frames_.filled(static_cast<std::size_t>(num_read));
  return num_read >= 0;
}

}  // namespace quire
