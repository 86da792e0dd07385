// Messages between two servers: what one writes the other reads, in pieces of any size; what was cut, flipped, said before, or said by
// somebody else is nothing.
#include "runtime/remote/peer_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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

// The first frame in these bytes.
std::optional<PeerFrame> take(PeerFrames& frames, std::span<const std::byte> bytes, std::size_t piece) {
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

std::vector<std::byte> block_frame(PeerSeal& seal, const PeerSession& session, std::uint32_t index, std::uint64_t number) {
  std::vector<std::byte> out;
  std::ranges::copy(tier_block(number, kBlock), PeerSeal::add_block(out, index, kBlock).begin());
  seal.seal_block(out, session, tier_name(number), kBlock);
  return out;
}

TEST(PeerWire, WhatOneWritesTheOtherReadsInPieces) {
  PeerSeal seal(key_of(1)), other(key_of(1));
  const PeerSession session = session_of(3);
  std::vector<std::byte> out;
  for (const std::size_t piece : {1, 7, 5000}) {
    out.clear();
    PeerSeal::add_hello(out, {.fingerprint = session.fingerprint, .nonce = session.consumer});
    PeerFrames frames(kMostPeerPayload);
    const auto hello = PeerSeal::read_hello(*take(frames, out, piece));
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
    seal.add_ask(out, session, PeerKind::read, {.request_id = std::string(kMostPeerName, 'r'), .first_block = 3, .num_blocks = 9});
    const auto ask = other.read_ask(*take(frames, out, piece), session);
    ASSERT_TRUE(ask);
    EXPECT_EQ(ask->request_id, std::string(kMostPeerName, 'r'));
    EXPECT_EQ(ask->first_block, 3U);
    EXPECT_EQ(ask->num_blocks, 9U);

    out = block_frame(seal, session, 4, 77);
    PeerFrames wide(peer_block_payload(kBlock));
    const auto bytes = other.read_block(*take(wide, out, piece), session, tier_name(77), 4, kBlock);
    ASSERT_TRUE(bytes);
    EXPECT_TRUE(std::ranges::equal(*bytes, tier_block(77, kBlock)));

    out.clear();
    PeerSeal::add_bye(out, PeerEnd::unknown_request);
    EXPECT_EQ(PeerSeal::read_bye(*take(frames, out, piece)), PeerEnd::unknown_request);
  }
}

TEST(PeerWire, NamesAndWhatIsSaidOfThemAreRead) {
  PeerSeal seal(key_of(1)), other(key_of(2));
  const PeerSession session = session_of(3);
  for (const std::size_t count : {std::size_t{1}, std::size_t{9}, kMostPeerNames}) {
    std::vector<OffloadKey> names;
    PeerFound found{.number = 5, .has = {}};
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(tier_name(i));
      found.has.push_back(i % 3 == 1);
    }
    for (const PeerKind kind : {PeerKind::find, PeerKind::take}) {
      std::vector<std::byte> out;
      seal.add_names(out, session, kind, 77, names);
      PeerFrames frames(kMostPeerNamesPayload);
      const auto frame = take(frames, out, 1000);
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->kind, kind);
      const auto read = seal.read_names(*frame, session);
      ASSERT_TRUE(read);
      EXPECT_EQ(read->number, 77U);
      EXPECT_EQ(read->names, names);
      EXPECT_FALSE(other.read_names(*frame, session));
      EXPECT_FALSE(seal.read_names(*frame, session_of(4)));
    }
    std::vector<std::byte> out;
    seal.add_found(out, session, found);
    PeerFrames frames(kMostPeerPayload);
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
  PeerFrames frames(kMostPeerPayload);
  const auto frame = take(frames, out, 7);
  ASSERT_TRUE(frame);
  EXPECT_EQ(seal.read_gone(*frame, session), 9U);
  EXPECT_FALSE(other.read_gone(*frame, session));
  EXPECT_FALSE(seal.read_names(*frame, session));
}

TEST(PeerWire, ABlockIsThatOfItsNameIndexConnectionModelAndKeyAlone) {
  PeerSeal seal(key_of(1)), other(key_of(2));
  const PeerSession session = session_of(3);
  const auto reads = [&](PeerSeal& reader, const PeerSession& of, std::uint64_t name, std::uint32_t index, std::size_t bytes) {
    std::vector<std::byte> out = block_frame(seal, session, 4, 77);
    PeerFrames frames(peer_block_payload(kBlock));
    return reader.read_block(*take(frames, out, out.size()), of, tier_name(name), index, bytes).has_value();
  };
  EXPECT_TRUE(reads(seal, session, 77, 4, kBlock));
  EXPECT_FALSE(reads(other, session, 77, 4, kBlock)) << "another key";
  EXPECT_FALSE(reads(seal, session_of(4), 77, 4, kBlock)) << "said on another connection, or of another model";
  EXPECT_FALSE(reads(seal, session, 78, 4, kBlock)) << "of other tokens";
  EXPECT_FALSE(reads(seal, session, 77, 5, kBlock)) << "another one of the request";
  EXPECT_FALSE(reads(seal, session, 77, 4, kBlock - 8)) << "of another layout";
}

TEST(PeerWire, EveryFlippedBitIsSeen) {
  PeerSeal seal(key_of(1));
  const PeerSession session = session_of(3);
  const std::vector<std::byte> good = block_frame(seal, session, 4, 77);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{static_cast<std::uint8_t>(1U << (at % 8))};
    PeerFrames frames(peer_block_payload(kBlock));
    const auto frame = take(frames, bad, bad.size());
    EXPECT_FALSE(frame && seal.read_block(*frame, session, tier_name(77), 4, kBlock)) << at;
  }
}

TEST(PeerWire, WhatIsNoMessageEndsTheConnectionBeforeMemoryIsTaken) {
  std::vector<std::byte> out;
  PeerSeal::add_bye(out, PeerEnd::served);
  for (const auto& [at, value] : {std::pair<std::size_t, std::uint8_t>{2, 1}, {3, 255}, {4, 0}, {4, 99}}) {
    std::vector<std::byte> bad = out;
    bad[at] = std::byte{value};
    PeerFrames frames(kMostPeerPayload);
    EXPECT_FALSE(take(frames, bad, bad.size()));
    EXPECT_TRUE(frames.is_broken()) << at;
  }
}

TEST(PeerWire, AnotherVersionIsHeardAndNothingMoreOfIt) {
  std::vector<std::byte> out;
  PeerSeal::add_hello(out, {.version = 9});
  PeerFrames frames(kMostPeerPayload);
  const auto hello = PeerSeal::read_hello(*take(frames, out, out.size()));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->version, 9);
  out.pop_back();
  out[0] = std::byte{static_cast<std::uint8_t>(std::to_integer<unsigned>(out[0]) - 1)};
  const auto cut = take(frames, out, out.size());
  ASSERT_TRUE(cut);
  EXPECT_TRUE(PeerSeal::read_hello(*cut)) << "a later one may say less";
}

}  // namespace
}  // namespace quire::test
