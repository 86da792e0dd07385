// Any bytes as what another server says, in pieces: each frame is one that could have been sent, takes no more memory than a frame may, and
// nothing of it is believed without the key.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "runtime/remote/peer_wire.h"

namespace quire {
namespace {

constexpr std::size_t kFuzzBlock = 64;

void look_at(const PeerFrame& frame, PeerSeal& seal) {
  const PeerSession session;
  QUIRE_CHECK(frame.payload.size() <= std::max(kMostPeerPayload, peer_block_payload(kFuzzBlock)), "more than a frame");
  if (const auto hello = PeerSeal::read_hello(frame)) QUIRE_CHECK(frame.kind == PeerKind::hello, "of the kind that it says");
  if (const auto end = PeerSeal::read_bye(frame)) QUIRE_CHECK(!peer_end_name(*end).empty(), "one that has a name");
  QUIRE_CHECK(!seal.read_welcome(frame, session), "nobody has said that");
  QUIRE_CHECK(!seal.read_ask(frame, session), "nobody has said that");
  for (const std::size_t bytes :
       {kFuzzBlock, frame.payload.size(), std::max(frame.payload.size(), peer_block_payload(0)) - peer_block_payload(0)})
    QUIRE_CHECK(!seal.read_block(frame, session, {}, 0, bytes), "nobody has sealed that");
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array<std::byte, 16> secret{};
  static quire::PeerSeal seal(secret);
  if (size < 2) return 0;
  quire::PeerFrames frames(data[0] % 2 == 0 ? quire::kMostPeerPayload : quire::peer_block_payload(quire::kFuzzBlock));
  const std::size_t piece = std::max<std::size_t>(1, data[1]);
  std::size_t num_taken = 0;
  for (std::size_t at = 2; at < size && !frames.is_broken();) {
    const std::span<std::byte> room = frames.room();
    QUIRE_CHECK(!room.empty(), "all whole frames were taken");
    const std::size_t count = std::min({piece, size - at, room.size()});
    std::copy_n(reinterpret_cast<const std::byte*>(data + at), count, room.begin());
    frames.filled(count);
    at += count;
    while (const auto frame = frames.next()) {
      num_taken += quire::kPeerHeadBytes + frame->payload.size();
      QUIRE_CHECK(num_taken <= size, "more than was sent");
      quire::look_at(*frame, seal);
    }
  }
  return 0;
}
