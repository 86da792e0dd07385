#pragma once
// A connection to a server that gives blocks by name, for as long as there is something to ask: made when it is needed, greeted, closed
// when it has been idle for a while (peer_wire.h). One thread, which polls it.
//
// States, and who moves it between them:
//   closed   -> greeting  open()
//   greeting -> open      go_on(): the other side has shown that it has the key
//   any      -> closed    close(); what is asked for then is whoever closes it to know
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/remote/peer_link.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/remote_address.h"

namespace quire {

class PeerLine {
 public:
  enum class State : std::uint8_t { closed, greeting, open };
  using TimePoint = std::chrono::steady_clock::time_point;

  // `most_payload`: of what may come.
  PeerLine(RemoteAddress address, const TierFingerprint& fingerprint, std::size_t most_payload)
      : address_(std::move(address)), fingerprint_(fingerprint), most_payload_(most_payload) {}

  void open();
  void close() { link_.reset(), state_ = State::closed; }

  // Writes and reads what can be at once; the next frame but for the greeting's. Valid until the next call. nullopt: nothing now, or it is
  // lost.
  std::optional<PeerFrame> go_on(PeerSeal& seal);
  // Nobody is there, or nobody who can be spoken with.
  [[nodiscard]] bool is_lost() const { return state_ != State::closed && (!why_.empty() || link_->is_lost()); }
  [[nodiscard]] std::string why_lost() const { return why_.empty() ? link_->why_lost() : why_; }

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const PeerSession& session() const { return session_; }
  [[nodiscard]] const std::string& engine_id() const { return engine_id_; }
  // Not while it is closed.
  [[nodiscard]] std::vector<std::byte>& out() { return link_->out(); }
  [[nodiscard]] int descriptor() const { return link_ == nullptr ? -1 : link_->descriptor(); }
  [[nodiscard]] short events() const { return link_ == nullptr ? short{0} : link_->events(); }

 private:
  const RemoteAddress address_;
  const TierFingerprint fingerprint_;
  const std::size_t most_payload_;
  std::unique_ptr<PeerLink> link_;  // null: it is closed
  State state_ = State::closed;
  PeerSession session_;
  std::string engine_id_, why_;
};

}  // namespace quire
