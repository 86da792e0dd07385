// Tests messages between two servers: the reader accepts them in pieces of any size, and refuses messages that were cut, flipped, replayed
// or written by another server.
#include "runtime/remote/peer_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/keyed_mac.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::size_t kBlock = 900;

std::vector<std::byte> key_of(std::uint8_t value) {
  return std::vector(16, std::byte{value});
}

PeerSession session_of(std::uint8_t value) {
  PeerSession session;
  session.fingerprint.fill(value);
  session.consumer.fill(std::byte{value});
  session.producer.fill(std::byte{static_cast<std::uint8_t>(value + 1)});
  return session;
}

// Returns the first frame in these bytes.
std::optional<PeerFrame> take(PeerFrameParser& frames, std::span<const std::byte> bytes, std::size_t piece) {
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::span<const std::byte> part = bytes.subspan(at, std::min(piece, bytes.size() - at));
    const std::span<std::byte> room = frames.room();
    if (room.size() < part.size()) return std::nullopt;
    std::ranges::copy(part, room.begin());
    frames.filled(part.size());
    if (const auto frame = frames.next(); frame || frames.is_broken()) return frame;
  }
  return std::nullopt;
}

std::vector<std::byte> block_frame(PeerFrameCodec& seal, const PeerSession& session, std::uint32_t index, std::uint64_t number) {
  std::vector<std::byte> out;
  std::ranges::copy(tier_block(number, kBlock), PeerFrameCodec::add_block(out, index, kBlock).begin());
  seal.seal_block(out, session, tier_name(number), kBlock);
  return out;
}

TEST(PeerWire, ReadsMessagesInPiecesOfAnySize) {
  PeerFrameCodec seal(key_of(1)), other(key_of(1));
  const PeerSession session = session_of(3);
  std::vector<std::byte> out;
  for (const std::size_t piece : {1, 7, 5000}) {
    out.clear();
    PeerFrameCodec::add_hello(out, {.fingerprint = session.fingerprint, .nonce = session.consumer});
    PeerFrameParser frames(kMaxPeerPayload);
    const auto hello = PeerFrameCodec::read_hello(*take(frames, out, piece));
    ASSERT_TRUE(hello);
    EXPECT_EQ(hello->version, kPeerVersion);
    EXPECT_EQ(hello->fingerprint, session.fingerprint);
    EXPECT_EQ(hello->nonce, session.consumer);

    out.clear();
    seal.add_welcome(out, session, "engine");
    PeerSession unknown = session;
    unknown.producer = {};
    const auto welcome = other.read_welcome(*take(frames, out, piece), unknown);
    ASSERT_TRUE(welcome);
    EXPECT_EQ(welcome->nonce, session.producer);
    EXPECT_EQ(welcome->engine_id, "engine");

    out.clear();
    seal.add_request(out, session, PeerKind::read, {.request_id = std::string(kMaxPeerIdBytes, 'r'), .first_block = 3, .num_blocks = 9});
    const auto ask = other.read_request(*take(frames, out, piece), session);
    ASSERT_TRUE(ask);
    EXPECT_EQ(ask->request_id, std::string(kMaxPeerIdBytes, 'r'));
    EXPECT_EQ(ask->first_block, 3U);
    EXPECT_EQ(ask->num_blocks, 9U);

    out = block_frame(seal, session, 4, 77);
    PeerFrameParser wide(peer_block_payload(kBlock));
    const auto bytes = other.read_block(*take(wide, out, piece), session, tier_name(77), 4, kBlock);
    ASSERT_TRUE(bytes);
    EXPECT_TRUE(std::ranges::equal(*bytes, tier_block(77, kBlock)));

    out.clear();
    PeerFrameCodec::add_bye(out, PeerCloseReason::unknown_request);
    EXPECT_EQ(PeerFrameCodec::read_bye(*take(frames, out, piece)), PeerCloseReason::unknown_request);
  }
}

TEST(PeerWire, ReadsListsOfKeysAndTheirAnswers) {
  PeerFrameCodec seal(key_of(1)), other(key_of(2));
  const PeerSession session = session_of(3);
  for (const std::size_t count : {std::size_t{1}, std::size_t{9}, kMaxPeerKeys}) {
    std::vector<OffloadKey> names;
    PeerFound found{.number = 5, .has = {}};
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(tier_name(i));
      found.has.push_back(i % 3 == 1);
    }
    for (const PeerKind kind : {PeerKind::find, PeerKind::take}) {
      std::vector<std::byte> out;
      seal.add_keys(out, session, kind, 77, names);
      PeerFrameParser frames(kMaxPeerKeysPayload);
      const auto frame = take(frames, out, 1000);
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->kind, kind);
      const auto read = seal.read_keys(*frame, session);
      ASSERT_TRUE(read);
      EXPECT_EQ(read->number, 77U);
      EXPECT_EQ(read->names, names);
      EXPECT_FALSE(other.read_keys(*frame, session));
      EXPECT_FALSE(seal.read_keys(*frame, session_of(4)));
    }
    std::vector<std::byte> out;
    seal.add_found(out, session, found);
    PeerFrameParser frames(kMaxPeerPayload);
    const auto frame = take(frames, out, 7);
    ASSERT_TRUE(frame);
    const auto read = seal.read_found(*frame, session);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->number, 5U);
    EXPECT_EQ(read->has, found.has);
    EXPECT_FALSE(other.read_found(*frame, session));
  }
  std::vector<std::byte> out;
  seal.add_gone(out, session, 9);
  PeerFrameParser frames(kMaxPeerPayload);
  const auto frame = take(frames, out, 7);
  ASSERT_TRUE(frame);
  EXPECT_EQ(seal.read_gone(*frame, session), 9U);
  EXPECT_FALSE(other.read_gone(*frame, session));
  EXPECT_FALSE(seal.read_keys(*frame, session));
}

TEST(PeerWire, BindsABlockToItsKeyIndexConnectionModelAndSecret) {
  PeerFrameCodec seal(key_of(1)), other(key_of(2));
  const PeerSession session = session_of(3);
  const auto reads = [&](PeerFrameCodec& reader, const PeerSession& of, std::uint64_t name, std::uint32_t index, std::size_t bytes) {
    std::vector<std::byte> out = block_frame(seal, session, 4, 77);
    PeerFrameParser frames(peer_block_payload(kBlock));
    return reader.read_block(*take(frames, out, out.size()), of, tier_name(name), index, bytes).has_value();
  };
  EXPECT_TRUE(reads(seal, session, 77, 4, kBlock));
  EXPECT_FALSE(reads(other, session, 77, 4, kBlock)) << "another key";
  EXPECT_FALSE(reads(seal, session_of(4), 77, 4, kBlock)) << "another connection or another model";
  EXPECT_FALSE(reads(seal, session, 78, 4, kBlock)) << "other tokens";
  EXPECT_FALSE(reads(seal, session, 77, 5, kBlock)) << "another block of the request";
  EXPECT_FALSE(reads(seal, session, 77, 4, kBlock - 8)) << "another layout";
}

// A kind of frame with a MAC: functions that write it and that check whether a reader accepts it.
struct SealedKind {
  const char* name;
  PeerKind kind;
  void (*add)(PeerFrameCodec& seal, std::vector<std::byte>& out, const PeerSession& session);
  bool (*reads)(PeerFrameCodec& seal, const PeerFrame& frame, const PeerSession& session);
};

const std::vector<SealedKind>& sealed_kinds() {
  static const std::vector<SealedKind> kKinds = {
      {"welcome", PeerKind::welcome, [](PeerFrameCodec& seal, auto& out, const auto& session) { seal.add_welcome(out, session, "engine"); },
       [](PeerFrameCodec& seal, const PeerFrame& frame, const auto& session) { return seal.read_welcome(frame, session).has_value(); }},
      {"read", PeerKind::read,
       [](PeerFrameCodec& seal, auto& out, const auto& session) {
         seal.add_request(out, session, PeerKind::read, {.request_id = "r", .first_block = 0, .num_blocks = 2});
       },
       [](PeerFrameCodec& seal, const PeerFrame& frame, const auto& session) { return seal.read_request(frame, session).has_value(); }},
      {"find", PeerKind::find,
       [](PeerFrameCodec& seal, auto& out, const auto& session) {
         seal.add_keys(out, session, PeerKind::find, 1, std::array{tier_name(5)});
       },
       [](PeerFrameCodec& seal, const PeerFrame& frame, const auto& session) { return seal.read_keys(frame, session).has_value(); }},
      {"found", PeerKind::found,
       [](PeerFrameCodec& seal, auto& out, const auto& session) { seal.add_found(out, session, {.number = 1, .has = {true}}); },
       [](PeerFrameCodec& seal, const PeerFrame& frame, const auto& session) { return seal.read_found(frame, session).has_value(); }},
      {"gone", PeerKind::gone, [](PeerFrameCodec& seal, auto& out, const auto& session) { seal.add_gone(out, session, 3); },
       [](PeerFrameCodec& seal, const PeerFrame& frame, const auto& session) { return seal.read_gone(frame, session).has_value(); }},
      {"block", PeerKind::block, [](PeerFrameCodec& seal, auto& out, const auto& session) { out = block_frame(seal, session, 4, 77); },
       [](PeerFrameCodec& seal, const PeerFrame& frame, const auto& session) {
         return seal.read_block(frame, session, tier_name(77), 4, kBlock).has_value();
       }}};
  return kKinds;
}

// Returns whether `reader` with `heard` accepts the frame that `writer` seals with `said`.
bool is_taken(const SealedKind& kind, PeerFrameCodec& writer, const PeerSession& said, PeerFrameCodec& reader, const PeerSession& heard) {
  std::vector<std::byte> out;
  kind.add(writer, out, said);
  PeerFrameParser frames(peer_block_payload(kBlock));
  const auto frame = take(frames, out, out.size());
  return frame && kind.reads(reader, *frame, heard);
}

TEST(PeerWire, RefusesFramesWhenAnyFieldOfTheSessionDiffers) {
  PeerFrameCodec seal(key_of(1));
  const PeerSession session = session_of(3);
  for (const SealedKind& kind : sealed_kinds()) {
    ASSERT_TRUE(is_taken(kind, seal, session, seal, session)) << kind.name;
    for (const std::size_t at : {0U, 15U, 31U}) {
      PeerSession other = session;
      other.fingerprint[at] ^= 1U;
      EXPECT_FALSE(is_taken(kind, seal, session, seal, other)) << kind.name << ": another model";
      if (at > 15) continue;
      other = session;
      other.consumer[at] ^= std::byte{0x80};
      EXPECT_FALSE(is_taken(kind, seal, session, seal, other)) << kind.name << ": to another consumer";
      other = session;
      other.producer[at] ^= std::byte{0x80};
      // A welcome contains the producer's number itself.
      EXPECT_EQ(is_taken(kind, seal, session, seal, other), kind.kind == PeerKind::welcome) << kind.name << ": by another producer";
    }
    PeerSession swapped = session;
    std::swap(swapped.consumer, swapped.producer);
    if (kind.kind != PeerKind::welcome) EXPECT_FALSE(is_taken(kind, seal, session, seal, swapped)) << kind.name << ": sent back";
  }
}

TEST(PeerWire, RefusesFramesWhenAnyByteOrTheLengthOfTheKeyDiffers) {
  const PeerSession session = session_of(3);
  for (const std::size_t size : {16U, 33U, 64U, 65U, 200U}) {
    std::vector<std::byte> key(size, std::byte{7});
    PeerFrameCodec seal(key);
    std::vector<std::vector<std::byte>> others;
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) others.emplace_back(key)[at] ^= std::byte{1};
    others.emplace_back(key).push_back(std::byte{7});
    others.emplace_back(key).pop_back();
    for (const std::vector<std::byte>& other_key : others) {
      PeerFrameCodec other(other_key);
      for (const SealedKind& kind : sealed_kinds())
        EXPECT_FALSE(is_taken(kind, seal, session, other, session)) << kind.name << " with a key of " << size << " bytes";
    }
  }
}

TEST(PeerWire, RefusesAFrameOfAnotherKind) {
  PeerFrameCodec seal(key_of(1));
  const PeerSession session = session_of(3);
  for (const SealedKind& said : sealed_kinds())
    for (const SealedKind& heard : sealed_kinds()) {
      if (said.kind == heard.kind) continue;
      std::vector<std::byte> out;
      said.add(seal, out, session);
      out[4] = static_cast<std::byte>(heard.kind);
      PeerFrameParser frames(peer_block_payload(kBlock));
      const auto frame = take(frames, out, out.size());
      EXPECT_FALSE(frame && heard.reads(seal, *frame, session)) << said.name << " as " << heard.name;
    }
}

// Two servers must agree on the version and the order of the fields. The MAC is computed from the description in peer_wire.h.
TEST(PeerWire, MacMatchesItsDescription) {
  PeerFrameCodec seal(key_of(9));
  const PeerSession session = session_of(3);
  for (const SealedKind& kind : sealed_kinds()) {
    std::vector<std::byte> out;
    kind.add(seal, out, session);
    const bool is_block = kind.kind == PeerKind::block;
    const OffloadKey name = tier_name(77);
    const std::uint32_t group = is_block ? name.group : 0;
    KeyedMac mac(key_of(9));
    mac.update(std::array{static_cast<std::byte>(kind.kind), std::byte{1}, std::byte{0}});
    mac.update(std::array{static_cast<std::byte>(group), std::byte{0}, std::byte{0}, std::byte{0}});
    mac.update(std::as_bytes(std::span(session.fingerprint)));
    mac.update(session.consumer);
    mac.update(session.producer);
    if (is_block) mac.update(std::as_bytes(std::span(name.hash)));
    const std::span<const std::byte> payload = std::span<const std::byte>(out).subspan(kPeerHeadBytes);
    mac.update(payload.first(payload.size() - kPeerMacBytes));
    const Sha256Digest expected = mac.finish();
    EXPECT_TRUE(std::ranges::equal(payload.last(kPeerMacBytes), std::as_bytes(std::span(expected)))) << kind.name;
  }
}

TEST(PeerWire, RefusesABlockOfAnotherCacheGroup) {
  PeerFrameCodec seal(key_of(1));
  const PeerSession session = session_of(3);
  std::vector<std::byte> out = block_frame(seal, session, 4, 77);
  PeerFrameParser frames(peer_block_payload(kBlock));
  OffloadKey name = tier_name(77);
  name.group += 1;
  EXPECT_FALSE(seal.read_block(*take(frames, out, out.size()), session, name, 4, kBlock));
}

TEST(PeerWire, DetectsEveryFlippedBit) {
  PeerFrameCodec seal(key_of(1));
  const PeerSession session = session_of(3);
  const std::vector<std::byte> good = block_frame(seal, session, 4, 77);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{static_cast<std::uint8_t>(1U << (at % 8))};
    PeerFrameParser frames(peer_block_payload(kBlock));
    const auto frame = take(frames, bad, bad.size());
    EXPECT_FALSE(frame && seal.read_block(*frame, session, tier_name(77), 4, kBlock)) << at;
  }
}

TEST(PeerWire, RefusesInvalidFramesBeforeAllocatingMemory) {
  std::vector<std::byte> out;
  PeerFrameCodec::add_bye(out, PeerCloseReason::served);
  for (const auto& [at, value] : {std::pair<std::size_t, std::uint8_t>{2, 1}, {3, 255}, {4, 0}, {4, 99}}) {
    std::vector<std::byte> bad = out;
    bad[at] = std::byte{value};
    PeerFrameParser frames(kMaxPeerPayload);
    EXPECT_FALSE(take(frames, bad, bad.size()));
    EXPECT_TRUE(frames.is_broken()) << at;
  }
}

TEST(PeerWire, ReadsOnlyTheVersionOfAnotherVersionsHello) {
  std::vector<std::byte> out;
  PeerFrameCodec::add_hello(out, {.version = 9});
  PeerFrameParser frames(kMaxPeerPayload);
  const auto hello = PeerFrameCodec::read_hello(*take(frames, out, out.size()));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->version, 9);
  out.pop_back();
  out[0] = std::byte{static_cast<std::uint8_t>(std::to_integer<unsigned>(out[0]) - 1)};
  const auto cut = take(frames, out, out.size());
  ASSERT_TRUE(cut);
  EXPECT_TRUE(PeerFrameCodec::read_hello(*cut)) << "a later version may send less";
}

}  // namespace
}  // namespace quire::test
