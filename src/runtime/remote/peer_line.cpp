#include "runtime/remote/peer_line.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

void PeerLine::open() {
  QUIRE_CHECK(state_ == State::closed, "a line is opened once");
  link_ = std::make_unique<PeerLink>(std::make_unique<NetStream>(address_, std::make_shared<NetTls>()),
                                     std::max(kMostPeerPayload, most_payload_));
  state_ = State::greeting;
  why_.clear();
  PeerHello hello{.fingerprint = fingerprint_};
  const bool has_nonce = getrandom(hello.nonce.data(), hello.nonce.size(), 0) == static_cast<ssize_t>(sizeof(PeerNonce));
  QUIRE_CHECK(has_nonce, "the system gives random numbers");
  session_ = {.fingerprint = fingerprint_, .consumer = hello.nonce, .producer = {}};
  PeerSeal::add_hello(link_->out(), hello);
}

std::optional<PeerFrame> PeerLine::go_on(PeerSeal& seal) {
  if (state_ == State::closed || !why_.empty()) return std::nullopt;
  for (;;) {
    const bool is_there = link_->go_on();
    // What came before it was lost counts.
    const std::optional<PeerFrame> frame = link_->next();
    if (!frame && !is_there && why_.empty() && !link_->is_lost()) why_ = "it has gone";
    if (!frame) return std::nullopt;
    if (frame->kind == PeerKind::bye) {
      const std::optional<PeerEnd> end = PeerSeal::read_bye(*frame);
      why_ = end ? peer_end_name(*end) : "what it says is no message";
      return std::nullopt;
    }
    if (state_ == State::open) return frame;
    std::optional<PeerWelcome> welcome = seal.read_welcome(*frame, session_);
    if (!welcome) {
      why_ = "what it says does not verify: it has another key";
      return std::nullopt;
    }
    session_.producer = welcome->nonce;
    engine_id_ = std::move(welcome->engine_id);
    state_ = State::open;
  }
}

}  // namespace quire
