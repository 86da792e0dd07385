// Tests the parser of frames: the longest payload, unknown kinds, invalid frames, and several frames in the buffer.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/remote/peer_wire.h"
#include "runtime/remote/wire_bytes.h"

namespace quire::test {
namespace {

void feed(PeerFrameParser& parser, const WireBytes& bytes) {
  const std::span<std::byte> room = parser.room();
  ASSERT_GE(room.size(), bytes.size());
  std::ranges::copy(bytes, room.begin());
  parser.filled(bytes.size());
}

TEST(PeerFrameParserBytes, AcceptsTheLongestPayloadAndNoLonger) {
  for (const std::size_t max : {0U, 1U, 9U, 10U, 256U}) {
    for (std::size_t more = 0; more <= 12; ++more) {
      const auto length = static_cast<unsigned>(max + more);
      PeerFrameParser parser(max);
      feed(parser, wire_bytes({length & 0xffU, length >> 8U, 0, 0, 11}));
      const auto early = parser.next();
      EXPECT_EQ(parser.is_broken(), more > 0) << "a payload of " << length << " with a limit of " << max;
      EXPECT_EQ(early.has_value(), length == 0) << length;
      if (more > 0 || length == 0) continue;
      feed(parser, wire_fill(length, 0x77));
      const auto frame = parser.next();
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->kind, PeerKind::gone);
      EXPECT_EQ(WireBytes(frame->payload.begin(), frame->payload.end()), wire_fill(length, 0x77));
      EXPECT_FALSE(parser.is_broken());
    }
  }
}

TEST(PeerFrameParserBytes, AcceptsOnlyKnownKinds) {
  for (unsigned kind = 0; kind < 256; ++kind) {
    PeerFrameParser parser(16);
    feed(parser, wire_bytes({0, 0, 0, 0, kind}));
    const auto frame = parser.next();
    EXPECT_EQ(frame.has_value(), kind >= 1 && kind <= 11) << kind;
    EXPECT_EQ(parser.is_broken(), !frame.has_value()) << kind;
    if (frame) EXPECT_EQ(frame->kind, static_cast<PeerKind>(kind));
  }
}

TEST(PeerFrameParserBytes, ReadsNothingAfterAnInvalidFrame) {
  PeerFrameParser parser(16);
  feed(parser, joined({wire_bytes({0, 0, 0, 0, 99}), wire_bytes({1, 0, 0, 0, 7, 0})}));
  EXPECT_FALSE(parser.next());
  EXPECT_FALSE(parser.next());
  EXPECT_TRUE(parser.is_broken());
}

TEST(PeerFrameParserBytes, SplitsSeveralFramesAndKeepsTheRest) {
  PeerFrameParser parser(20);
  EXPECT_EQ(parser.room().size(), 25U);
  EXPECT_FALSE(parser.next());
  // Two whole frames and two bytes of the third.
  feed(parser, joined({wire_bytes({2, 0, 0, 0, 3, 0xa, 0xb}), wire_bytes({0, 0, 0, 0, 4}), wire_bytes({1, 0})}));
  auto frame = parser.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, PeerKind::read);
  EXPECT_EQ(WireBytes(frame->payload.begin(), frame->payload.end()), wire_bytes({0xa, 0xb}));
  EXPECT_EQ(parser.room().size(), 18U) << "the bytes of the frames that wait stay";
  frame = parser.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, PeerKind::block);
  EXPECT_TRUE(frame->payload.empty());
  EXPECT_FALSE(parser.next());
  EXPECT_EQ(parser.room().size(), 23U);
  feed(parser, wire_bytes({0, 0}));
  EXPECT_FALSE(parser.next()) << "a byte of the head is missing";
  feed(parser, wire_bytes({7}));
  EXPECT_FALSE(parser.next()) << "the payload is missing";
  feed(parser, wire_bytes({5}));
  frame = parser.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(PeerFrameCodec::read_bye(*frame), PeerCloseReason::busy);
  EXPECT_EQ(parser.room().size(), 25U);
  // A whole frame of the longest payload fills the buffer until it is taken.
  feed(parser, joined({wire_bytes({20, 0, 0, 0, 2}), wire_fill(20, 1)}));
  EXPECT_TRUE(parser.room().empty());
  ASSERT_TRUE(parser.next());
  EXPECT_EQ(parser.room().size(), 25U);
}

}  // namespace
}  // namespace quire::test
