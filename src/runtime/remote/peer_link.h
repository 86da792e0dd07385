#pragma once
// One connection between two servers (peer_wire.h), as either side has it: frames in, frames out, and a time by which something must have
// come of it. One thread, which polls it.
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/stream.h"
#include "runtime/remote/peer_wire.h"

namespace quire {

class PeerLink {
 public:
  PeerLink(std::unique_ptr<NetStream> stream, std::size_t most_payload) : stream_(std::move(stream)), frames_(most_payload) {}

  // What is to be sent goes behind it, and is kept until it has gone out.
  [[nodiscard]] std::vector<std::byte>& out() { return out_; }
  [[nodiscard]] bool has_output() const { return out_at_ < out_.size(); }
  // Writes and reads what can be at once. false: it is lost.
  bool go_on();
  // The next frame; valid until go_on().
  std::optional<PeerFrame> next() { return frames_.next(); }

  // Nobody can understand what comes in, or the other side has gone.
  [[nodiscard]] bool is_lost() const { return is_lost_ || frames_.is_broken(); }
  [[nodiscard]] std::string why_lost() const { return frames_.is_broken() ? "what it says is no message" : stream_->why_lost(); }
  [[nodiscard]] int descriptor() const { return stream_->descriptor(); }
  // `has_more`: there will be something to send as soon as what there is has gone out.
  [[nodiscard]] short events(bool has_more = false) const { return stream_->events(has_more || has_output()); }

 private:
  bool write();
  bool read();

  const std::unique_ptr<NetStream> stream_;
  PeerFrames frames_;
  std::vector<std::byte> out_;
  std::size_t out_at_ = 0;
  bool is_lost_ = false;
};

}  // namespace quire
