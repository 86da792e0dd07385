#pragma once
// Sends and receives frames (peer_wire.h) on one connection between two servers. Used by both sides, each on one thread, which also polls
// the stream.
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/stream.h"
#include "runtime/remote/peer_wire.h"

namespace quire {

class PeerFrameStream {
 public:
  PeerFrameStream(std::unique_ptr<NetStream> stream, std::size_t max_payload) : stream_(std::move(stream)), frames_(max_payload) {}

  // Returns the output buffer: callers append frames, which stay in the buffer until they are written.
  [[nodiscard]] std::vector<std::byte>& out() { return out_; }
  [[nodiscard]] bool has_output() const { return out_at_ < out_.size(); }
  // Writes and reads as much as possible without waiting. Returns false if the connection is lost.
  bool advance();
  // Returns the next frame, valid until advance().
  std::optional<PeerFrame> next() { return frames_.next(); }

  // Returns whether the other side has closed the connection or sent an invalid frame.
  [[nodiscard]] bool is_lost() const { return is_lost_ || frames_.is_broken(); }
  [[nodiscard]] std::string lost_reason() const { return frames_.is_broken() ? "it sent an invalid message" : stream_->lost_reason(); }
  [[nodiscard]] int descriptor() const { return stream_->descriptor(); }
  // `has_more`: the caller appends more output as soon as the buffer is written.
  [[nodiscard]] short events(bool has_more = false) const { return stream_->events(has_more || has_output()); }

 private:
  bool write();
  bool read();

  const std::unique_ptr<NetStream> stream_;
  PeerFrameParser frames_;
  std::vector<std::byte> out_;
  std::size_t out_at_ = 0;
  bool is_lost_ = false;
};

}  // namespace quire
