// Reads any bytes as messages of another server, in pieces. Each frame is a valid one within the memory limit, and no content is accepted
// without the key. Then reads the same bytes as payloads that are sealed with the key. They are refused, or they are written again as they
// were read.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/keyed_mac.h"
#include "fuzz/subject.h"
#include "runtime/remote/peer_wire.h"

namespace quire {
namespace {

test::FuzzSubject subject("a sealed list of names");

constexpr std::size_t kFuzzBlock = 64;

void look_at(const PeerFrame& frame, PeerFrameCodec& seal) {
  const PeerSession session;
  QUIRE_CHECK(frame.payload.size() <= std::max(kMaxPeerKeysPayload, peer_block_payload(kFuzzBlock)), "more than a frame");
  if (const auto hello = PeerFrameCodec::read_hello(frame)) QUIRE_CHECK(frame.kind == PeerKind::hello, "of the kind that it says");
  if (const auto end = PeerFrameCodec::read_bye(frame)) QUIRE_CHECK(!peer_close_reason_name(*end).empty(), "one that has a name");
  QUIRE_CHECK(!seal.read_welcome(frame, session), "nobody has said that");
  QUIRE_CHECK(!seal.read_request(frame, session), "nobody has said that");
  QUIRE_CHECK(!seal.read_keys(frame, session) && !seal.read_found(frame, session) && !seal.read_gone(frame, session),
              "nobody has said that");
  for (const std::size_t bytes :
       {kFuzzBlock, frame.payload.size(), std::max(frame.payload.size(), peer_block_payload(0)) - peer_block_payload(0)})
    QUIRE_CHECK(!seal.read_block(frame, session, {}, 0, bytes), "nobody has sealed that");
}

// Returns the payload with the MAC that PeerFrameCodec appends.
std::vector<std::byte> sealed(PeerKind kind, std::span<const std::byte> payload, std::span<const std::byte> secret) {
  const PeerSession session;
  KeyedMac mac(secret);
  std::array<std::byte, 7> head{};
  head[0] = static_cast<std::byte>(kind);
  head[1] = static_cast<std::byte>(kPeerVersion);
  mac.update(head);
  mac.update(std::as_bytes(std::span(session.fingerprint)));
  mac.update(session.consumer);
  mac.update(session.producer);
  mac.update(payload);
  const Sha256Digest digest = mac.finish();
  std::vector<std::byte> frame(payload.begin(), payload.end());
  const auto bytes = std::as_bytes(std::span(digest));
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  return frame;
}

void expect_same(std::span<const std::byte> written, std::span<const std::byte> payload) {
  QUIRE_CHECK(written.size() == kPeerHeadBytes + payload.size() + kPeerMacBytes, "a message keeps its length");
  QUIRE_CHECK(std::ranges::equal(written.subspan(kPeerHeadBytes, payload.size()), payload), "what was read is what was said");
}

void believe(std::span<const std::byte> payload, PeerFrameCodec& seal, std::span<const std::byte> secret) {
  const PeerSession session;
  for (const PeerKind kind : {PeerKind::find, PeerKind::take, PeerKind::found, PeerKind::gone, PeerKind::read, PeerKind::welcome}) {
    std::vector<std::byte> bytes = sealed(kind, payload, secret);
    const PeerFrame frame{.kind = kind, .payload = bytes};
    std::vector<std::byte> out;
    if (const auto names = seal.read_keys(frame, session)) {
      subject.reached();
      QUIRE_CHECK(!names->names.empty() && names->names.size() <= kMaxPeerKeys, "as many as a frame may have");
      seal.add_keys(out, session, kind, names->number, names->names);
      expect_same(out, payload);
    }
    if (const auto found = seal.read_found(frame, session)) {
      QUIRE_CHECK(kind == PeerKind::found && found->has.size() <= kMaxPeerKeys, "as many as a frame may have");
      seal.add_found(out, session, *found);
      QUIRE_CHECK(out.size() == kPeerHeadBytes + bytes.size(), "a message keeps its length");
    }
    if (const auto gone = seal.read_gone(frame, session)) {
      seal.add_gone(out, session, *gone);
      expect_same(out, payload);
    }
    if (const auto ask = seal.read_request(frame, session)) QUIRE_CHECK(ask->request_id.size() <= kMaxPeerIdBytes, "names are short");
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array<std::byte, 16> secret{};
  static quire::PeerFrameCodec seal(secret);
  if (size < 2) return 0;
  quire::believe(std::as_bytes(std::span(data, std::min(size, quire::kMaxPeerKeysPayload))), seal, secret);
  quire::PeerFrameParser frames(data[0] % 2 == 0 ? quire::kMaxPeerPayload : quire::peer_block_payload(quire::kFuzzBlock));
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
