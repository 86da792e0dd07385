#pragma once
// A client's connection to a server that gives blocks by offload key (peer_wire.h). The owner opens the connection when needed, and closes
// an idle connection after a while. One thread uses and polls the connection.
//
// States, and what moves it:
//   closed   -> greeting  open()
//   greeting -> open      advance(): the other side has proved that it has the secret
//   any      -> closed    close(); the caller must handle the open lookups and loads
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/remote/peer_frame_stream.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/remote_address.h"

namespace quire {

class PeerClientConnection {
 public:
  enum class State : std::uint8_t { closed, greeting, open };
  using TimePoint = std::chrono::steady_clock::time_point;

  // `max_payload`: size in bytes of the largest payload that the server may send.
  PeerClientConnection(RemoteAddress address, const TierFingerprint& fingerprint, std::size_t max_payload)
      : address_(std::move(address)), fingerprint_(fingerprint), max_payload_(max_payload) {}

  void open();
  void close() { link_.reset(), state_ = State::closed; }

  // Writes and reads as much as possible without waiting. Returns the next frame after the greeting, valid until the next call; nullopt:
  // there is no frame yet, or the connection is lost.
  std::optional<PeerFrame> advance(PeerFrameCodec& codec);
  // Returns whether the server has closed the connection or sent an invalid message.
  [[nodiscard]] bool is_lost() const { return state_ != State::closed && (!why_.empty() || link_->is_lost()); }
  [[nodiscard]] std::string lost_reason() const { return why_.empty() ? link_->lost_reason() : why_; }

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const PeerSession& session() const { return session_; }
  [[nodiscard]] const std::string& engine_id() const { return engine_id_; }
  // Must not be called while the connection is closed.
  [[nodiscard]] std::vector<std::byte>& out() { return link_->out(); }
  [[nodiscard]] int descriptor() const { return link_ == nullptr ? -1 : link_->descriptor(); }
  [[nodiscard]] short events() const { return link_ == nullptr ? short{0} : link_->events(); }

 private:
  const RemoteAddress address_;
  const TierFingerprint fingerprint_;
  const std::size_t max_payload_;
  std::unique_ptr<PeerFrameStream> link_;  // null: closed
  State state_ = State::closed;
  PeerSession session_;
  std::string engine_id_, why_;
};

}  // namespace quire
