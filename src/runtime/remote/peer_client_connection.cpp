#include "runtime/remote/peer_client_connection.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

void PeerClientConnection::open() {
  QUIRE_CHECK(state_ == State::closed, "a connection is closed before it is opened");
  link_ = std::make_unique<PeerFrameStream>(std::make_unique<NetStream>(address_, std::make_shared<NetTls>()),
                                            std::max(kMaxPeerPayload, max_payload_));
  state_ = State::greeting;
  why_.clear();
  PeerHello hello{.fingerprint = fingerprint_};
  const bool has_nonce = getrandom(hello.nonce.data(), hello.nonce.size(), 0) == static_cast<ssize_t>(sizeof(PeerNonce));
  QUIRE_CHECK(has_nonce, "the system provides random bytes");
  session_ = {.fingerprint = fingerprint_, .consumer = hello.nonce, .producer = {}};
  PeerFrameCodec::add_hello(link_->out(), hello);
}

std::optional<PeerFrame> PeerClientConnection::advance(PeerFrameCodec& codec) {
  if (state_ == State::closed || !why_.empty()) return std::nullopt;
  for (;;) {
    link_->advance();
    // A frame that arrived before the connection was lost is still returned.
    const std::optional<PeerFrame> frame = link_->next();
    if (!frame) return std::nullopt;
    if (frame->kind == PeerKind::bye) {
      const std::optional<PeerCloseReason> end = PeerFrameCodec::read_bye(*frame);
      why_ = end ? peer_close_reason_name(*end) : "it sent an invalid message";
      return std::nullopt;
    }
    if (state_ == State::open) return frame;
    std::optional<PeerWelcome> welcome = codec.read_welcome(*frame, session_);
    if (!welcome) {
      why_ = "its answer failed verification: it has another key";
      return std::nullopt;
    }
    session_.producer = welcome->nonce;
    engine_id_ = std::move(welcome->engine_id);
    state_ = State::open;
  }
}

}  // namespace quire
