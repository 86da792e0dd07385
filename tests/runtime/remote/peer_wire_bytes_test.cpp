// Tests the bytes of each message between two servers, which must not change within a version, and the limits of each field. A message of
// any other length is refused, also if its MAC is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/keyed_mac.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/wire_bytes.h"

namespace quire::test {
namespace {

constexpr std::size_t kWireBlock = 40;

WireBytes wire_secret() {
  return wire_fill(16, 9);
}

PeerSession wire_session() {
  PeerSession session;
  session.fingerprint.fill(3);
  session.consumer.fill(std::byte{4});
  session.producer.fill(std::byte{5});
  return session;
}

OffloadKey wire_key(std::uint8_t value, std::uint32_t group) {
  OffloadKey key{.hash = {}, .group = group};
  key.hash.fill(value);
  key.hash[31] = 0xee;
  return key;
}

// Returns the payload followed by its MAC, as peer_wire.h describes it.
WireBytes with_mac(PeerKind kind, const WireBytes& payload) {
  const PeerSession session = wire_session();
  const OffloadKey key = wire_key(7, 2);
  const bool is_block = kind == PeerKind::block;
  KeyedMac mac(wire_secret());
  mac.update(wire_bytes({static_cast<unsigned>(kind), 1, 0, is_block ? 2U : 0U, 0, 0, 0}));
  mac.update(std::as_bytes(std::span(session.fingerprint)));
  mac.update(session.consumer);
  mac.update(session.producer);
  if (is_block) mac.update(std::as_bytes(std::span(key.hash)));
  mac.update(payload);
  const Sha256Digest digest = mac.finish();
  const auto bytes = std::as_bytes(std::span(digest));
  return joined({payload, WireBytes(bytes.begin(), bytes.end())});
}

// A sealed message: its payload by hand, the function that writes it, the function that reads it, and the kinds that this function reads.
struct WireMessage {
  const char* name;
  PeerKind kind;
  WireBytes payload;
  void (*add)(PeerFrameCodec& codec, WireBytes& out);
  bool (*reads)(PeerFrameCodec& codec, const PeerFrame& frame);
  std::vector<PeerKind> read_kinds;
};

bool reads_request(PeerFrameCodec& codec, const PeerFrame& frame) {
  return codec.read_request(frame, wire_session()).has_value();
}

const std::vector<WireMessage>& wire_messages() {
  static const std::vector<WireMessage> kMessages = {
      {"welcome",
       PeerKind::welcome,
       joined({wire_fill(16, 5), wire_bytes({3}), wire_text("eng")}),
       [](PeerFrameCodec& codec, WireBytes& out) { codec.add_welcome(out, wire_session(), "eng"); },
       [](PeerFrameCodec& codec, const PeerFrame& frame) { return codec.read_welcome(frame, wire_session()).has_value(); },
       {PeerKind::welcome}},
      {"read",
       PeerKind::read,
       joined({wire_bytes({2}), wire_text("id"), wire_bytes({0xd1, 0xc2, 0xb3, 0xa4}), wire_bytes({0x15, 0x26, 0x37, 0x48})}),
       [](PeerFrameCodec& codec, WireBytes& out) {
         codec.add_request(out, wire_session(), PeerKind::read, {.request_id = "id", .first_block = 0xa4b3c2d1, .num_blocks = 0x48372615});
       },
       reads_request,
       {PeerKind::read, PeerKind::done, PeerKind::renew}},
      {"find",
       PeerKind::find,
       joined({wire_bytes({0x01, 0x02, 0x03, 0x84}), wire_bytes({2, 0}), wire_bytes({0xfe, 0xff}), wire_fill(31, 1), wire_bytes({0xee}),
               wire_bytes({0x34, 0x12}), wire_fill(31, 2), wire_bytes({0xee})}),
       [](PeerFrameCodec& codec, WireBytes& out) {
         codec.add_keys(out, wire_session(), PeerKind::find, 0x84030201, std::array{wire_key(1, 0xfffe), wire_key(2, 0x1234)});
       },
       [](PeerFrameCodec& codec, const PeerFrame& frame) { return codec.read_keys(frame, wire_session()).has_value(); },
       {PeerKind::find, PeerKind::take}},
      {"found",
       PeerKind::found,
       wire_bytes({0x01, 0x02, 0x03, 0x84, 10, 0, 0b10000101, 0b10}),
       [](PeerFrameCodec& codec, WireBytes& out) {
         codec.add_found(out, wire_session(),
                         {.number = 0x84030201, .has = {true, false, true, false, false, false, false, true, false, true}});
       },
       [](PeerFrameCodec& codec, const PeerFrame& frame) { return codec.read_found(frame, wire_session()).has_value(); },
       {PeerKind::found}},
      {"gone",
       PeerKind::gone,
       wire_bytes({0x01, 0x02, 0x03, 0x84}),
       [](PeerFrameCodec& codec, WireBytes& out) { codec.add_gone(out, wire_session(), 0x84030201); },
       [](PeerFrameCodec& codec, const PeerFrame& frame) { return codec.read_gone(frame, wire_session()).has_value(); },
       {PeerKind::gone}},
      {"block",
       PeerKind::block,
       joined({wire_bytes({0x01, 0x02, 0x03, 0x84}), wire_fill(kWireBlock, 0x5a)}),
       [](PeerFrameCodec& codec, WireBytes& out) {
         std::ranges::fill(PeerFrameCodec::add_block(out, 0x84030201, kWireBlock), std::byte{0x5a});
         codec.seal_block(out, wire_session(), wire_key(7, 2), kWireBlock);
       },
       [](PeerFrameCodec& codec, const PeerFrame& frame) {
         return codec.read_block(frame, wire_session(), wire_key(7, 2), 0x84030201, kWireBlock).has_value();
       },
       {PeerKind::block}}};
  return kMessages;
}

bool is_read(const WireMessage& message, PeerKind kind, WireBytes payload) {
  PeerFrameCodec codec(wire_secret());
  return message.reads(codec, {.kind = kind, .payload = payload});
}

TEST(PeerWireBytes, WritesEachMessageAsDescribed) {
  for (const WireMessage& message : wire_messages()) {
    PeerFrameCodec codec(wire_secret());
    // A message is appended to the messages before it.
    WireBytes out = wire_bytes({0xaa, 0xbb});
    message.add(codec, out);
    const WireBytes sealed = with_mac(message.kind, message.payload);
    const auto length = static_cast<unsigned>(sealed.size());
    ASSERT_LT(length, 256U);
    EXPECT_EQ(out, joined({wire_bytes({0xaa, 0xbb, length, 0, 0, 0, static_cast<unsigned>(message.kind)}), sealed})) << message.name;
    EXPECT_TRUE(is_read(message, message.kind, sealed)) << message.name;
  }
}

TEST(PeerWireBytes, WritesGreetingsAndEndsAsDescribed) {
  WireBytes out;
  PeerHello hello{.version = 0x0201};
  hello.fingerprint.fill(8);
  hello.fingerprint[0] = 0x11;
  hello.nonce.fill(std::byte{6});
  hello.nonce[15] = std::byte{0x22};
  PeerFrameCodec::add_hello(out, hello);
  EXPECT_EQ(out, joined({wire_bytes({58, 0, 0, 0, 1}), wire_text("quirepkv"), wire_bytes({1, 2, 0x11}), wire_fill(31, 8), wire_fill(15, 6),
                         wire_bytes({0x22})}));
  out.clear();
  PeerFrameCodec::add_hello(out, {});
  EXPECT_EQ(out[13], std::byte{1}) << "the version of this protocol";
  out.clear();
  PeerFrameCodec::add_bye(out, PeerCloseReason::busy);
  EXPECT_EQ(out, wire_bytes({1, 0, 0, 0, 7, 5}));
}

TEST(PeerWireBytes, WritesLengthsOfMoreThanOneByte) {
  PeerFrameCodec codec(wire_secret());
  constexpr std::size_t kLarge = 0x012345;
  WireBytes out;
  EXPECT_EQ(PeerFrameCodec::add_block(out, 1, kLarge).size(), kLarge);
  codec.seal_block(out, wire_session(), wire_key(7, 2), kLarge);
  EXPECT_EQ(out.size(), 5 + 4 + kLarge + 32);
  EXPECT_EQ(WireBytes(out.begin(), out.begin() + 9), wire_bytes({0x69, 0x23, 0x01, 0, 4, 1, 0, 0, 0}));
  EXPECT_EQ(peer_block_payload(kLarge), 4 + kLarge + 32);
}

TEST(PeerWireBytes, ReadsEachFieldOfAMessage) {
  PeerFrameCodec codec(wire_secret());
  const PeerSession session = wire_session();
  const auto sealed = [](const char* name) {
    const WireMessage& message = *std::ranges::find(wire_messages(), std::string_view(name), [](const auto& one) { return one.name; });
    return std::pair(message.kind, with_mac(message.kind, message.payload));
  };
  auto [welcome_kind, welcome_bytes] = sealed("welcome");
  PeerSession greeting = session;
  greeting.producer = {};
  const auto welcome = codec.read_welcome({.kind = welcome_kind, .payload = welcome_bytes}, greeting).value();
  EXPECT_EQ(welcome.nonce, session.producer);
  EXPECT_EQ(welcome.engine_id, "eng");
  auto [read_kind, read_bytes] = sealed("read");
  const auto request = codec.read_request({.kind = read_kind, .payload = read_bytes}, session).value();
  EXPECT_EQ(request.request_id, "id");
  EXPECT_EQ(request.first_block, 0xa4b3c2d1U);
  EXPECT_EQ(request.num_blocks, 0x48372615U);
  auto [find_kind, find_bytes] = sealed("find");
  const auto keys = codec.read_keys({.kind = find_kind, .payload = find_bytes}, session).value();
  EXPECT_EQ(keys.number, 0x84030201U);
  EXPECT_EQ(keys.names, (std::vector{wire_key(1, 0xfffe), wire_key(2, 0x1234)}));
  auto [found_kind, found_bytes] = sealed("found");
  const auto found = codec.read_found({.kind = found_kind, .payload = found_bytes}, session).value();
  EXPECT_EQ(found.number, 0x84030201U);
  EXPECT_EQ(found.has, (std::vector{true, false, true, false, false, false, false, true, false, true}));
  auto [gone_kind, gone_bytes] = sealed("gone");
  EXPECT_EQ(codec.read_gone({.kind = gone_kind, .payload = gone_bytes}, session), 0x84030201U);
  auto [block_kind, block_bytes] = sealed("block");
  const auto block = codec.read_block({.kind = block_kind, .payload = block_bytes}, session, wire_key(7, 2), 0x84030201, kWireBlock);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->data(), block_bytes.data() + 4);
  EXPECT_EQ(WireBytes(block->begin(), block->end()), wire_fill(kWireBlock, 0x5a));
}

TEST(PeerWireBytes, RefusesEveryOtherLengthEvenWithARightMac) {
  for (const WireMessage& message : wire_messages()) {
    for (std::size_t size = 0; size < message.payload.size(); ++size) {
      const WireBytes cut(message.payload.begin(), message.payload.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(is_read(message, message.kind, with_mac(message.kind, cut))) << message.name << " of " << size;
    }
    EXPECT_FALSE(is_read(message, message.kind, with_mac(message.kind, joined({message.payload, wire_bytes({0})})))) << message.name;
    // Without a whole MAC there is nothing to verify.
    const WireBytes sealed = with_mac(message.kind, message.payload);
    for (std::size_t size = 0; size < sealed.size(); ++size)
      EXPECT_FALSE(is_read(message, message.kind, WireBytes(sealed.begin(), sealed.begin() + static_cast<std::ptrdiff_t>(size))))
          << message.name << " of " << size;
    EXPECT_FALSE(is_read(message, message.kind, joined({sealed, wire_bytes({0})}))) << message.name;
  }
}

TEST(PeerWireBytes, RefusesEveryOtherKindEvenWithARightMac) {
  for (const WireMessage& message : wire_messages())
    for (unsigned value = 0; value < 20; ++value) {
      const auto kind = static_cast<PeerKind>(value);
      EXPECT_EQ(is_read(message, kind, with_mac(kind, message.payload)), std::ranges::count(message.read_kinds, kind) == 1)
          << message.name << " as kind " << value;
    }
}

TEST(PeerWireBytes, LimitsTextsToTheirMaximum) {
  PeerFrameCodec codec(wire_secret());
  const PeerSession session = wire_session();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{127}, std::size_t{128}, std::size_t{129}, std::size_t{255}}) {
    const WireBytes text = joined({wire_bytes({static_cast<unsigned>(size)}), wire_fill(size, 'x')});
    WireBytes welcome = with_mac(PeerKind::welcome, joined({wire_fill(16, 5), text}));
    const auto greeted = codec.read_welcome({.kind = PeerKind::welcome, .payload = welcome}, session);
    WireBytes read = with_mac(PeerKind::read, joined({text, wire_fill(8, 0)}));
    const auto request = codec.read_request({.kind = PeerKind::read, .payload = read}, session);
    EXPECT_EQ(greeted.has_value(), size <= 128) << size;
    EXPECT_EQ(request.has_value(), size <= 128) << size;
    if (greeted) EXPECT_EQ(greeted->engine_id, std::string(size, 'x'));
    if (request) EXPECT_EQ(request->request_id, std::string(size, 'x'));
  }
}

TEST(PeerWireBytes, LimitsListsToTheirMaximum) {
  PeerFrameCodec codec(wire_secret());
  const PeerSession session = wire_session();
  for (const unsigned count : {0U, 1U, 127U, 128U, 129U, 256U, 384U}) {
    const WireBytes head = wire_bytes({1, 0, 0, 0, count & 0xffU, count >> 8U});
    WireBytes keys = with_mac(PeerKind::find, joined({head, wire_fill(std::size_t{count} * 34, 1)}));
    const auto read = codec.read_keys({.kind = PeerKind::find, .payload = keys}, session);
    EXPECT_EQ(read.has_value(), count >= 1 && count <= 128) << count;
    if (read) EXPECT_EQ(read->names.size(), count);
    WireBytes answer = with_mac(PeerKind::found, joined({head, wire_fill((std::size_t{count} + 7) / 8, 0xff)}));
    const auto found = codec.read_found({.kind = PeerKind::found, .payload = answer}, session);
    EXPECT_EQ(found.has_value(), count <= 128) << count;
    if (found) EXPECT_EQ(found->has, std::vector<bool>(count, true)) << count;
    // The count and the length differ by one entry.
    for (const std::size_t entries : {std::size_t{count} + 1, std::size_t{count} - 1}) {
      if (count == 0) continue;
      WireBytes wrong = with_mac(PeerKind::find, joined({head, wire_fill(entries * 34, 1)}));
      EXPECT_FALSE(codec.read_keys({.kind = PeerKind::find, .payload = wrong}, session)) << count;
    }
  }
  std::vector<OffloadKey> names(128, wire_key(1, 0));
  WireBytes out;
  codec.add_keys(out, session, PeerKind::take, 1, names);
  EXPECT_EQ(out.size() - kPeerHeadBytes, kMaxPeerKeysPayload) << "the longest list fits into the buffer of a server";
  out.clear();
  codec.add_found(out, session, {.number = 1, .has = std::vector<bool>(128, true)});
  EXPECT_LE(out.size() - kPeerHeadBytes, kMaxPeerPayload);
  out.clear();
  codec.add_welcome(out, session, std::string(128, 'x'));
  EXPECT_LE(out.size() - kPeerHeadBytes, kMaxPeerPayload);
}

TEST(PeerWireBytes, KeepsEachBitOfAnAnswer) {
  PeerFrameCodec codec(wire_secret());
  const PeerSession session = wire_session();
  for (const std::size_t count : {1U, 7U, 8U, 9U, 16U, 17U, 24U})
    for (std::size_t at = 0; at < count; ++at) {
      PeerFound found{.number = 3, .has = std::vector<bool>(count)};
      found.has[at] = true;
      WireBytes out;
      codec.add_found(out, session, found);
      WireBytes bits((count + 7) / 8);
      bits[at / 8] = static_cast<std::byte>(1U << (at % 8));
      EXPECT_EQ(WireBytes(out.begin() + 11, out.end() - 32), bits) << count << " " << at;
      const auto read = codec.read_found({.kind = PeerKind::found, .payload = std::span(out).subspan(5)}, session);
      ASSERT_TRUE(read);
      EXPECT_EQ(read->has, found.has) << count << " " << at;
    }
}

TEST(PeerWireBytes, ReadsOnlyWholeGreetings) {
  WireBytes out;
  PeerFrameCodec::add_hello(out, {});
  const WireBytes payload(out.begin() + 5, out.end());
  const auto read = [](PeerKind kind, WireBytes bytes) { return PeerFrameCodec::read_hello({.kind = kind, .payload = bytes}); };
  ASSERT_TRUE(read(PeerKind::hello, payload));
  for (unsigned kind = 2; kind < 12; ++kind) EXPECT_FALSE(read(static_cast<PeerKind>(kind), payload)) << kind;
  for (std::size_t size = 0; size < payload.size(); ++size) {
    const auto cut = read(PeerKind::hello, WireBytes(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_FALSE(cut && cut->version == kPeerVersion) << size;
    if (size < 8 || size >= 10) EXPECT_FALSE(cut) << size;
  }
  EXPECT_FALSE(read(PeerKind::hello, joined({payload, wire_bytes({0})})));
  for (std::size_t at = 0; at < 8; ++at) {
    WireBytes other = payload;
    other[at] ^= std::byte{0x20};
    EXPECT_FALSE(read(PeerKind::hello, other)) << "another protocol: " << at;
  }
}

TEST(PeerWireBytes, ReadsEveryReasonToCloseAndNoOther) {
  const auto read = [](PeerKind kind, WireBytes bytes) { return PeerFrameCodec::read_bye({.kind = kind, .payload = bytes}); };
  const std::vector<std::pair<PeerCloseReason, const char*>> reasons = {
      {PeerCloseReason::served, "served"},
      {PeerCloseReason::other_version, "it uses another protocol version"},
      {PeerCloseReason::other_model, "its model, KV layout or arithmetic differs"},
      {PeerCloseReason::not_verified, "it has another key"},
      {PeerCloseReason::unknown_request, "it holds no blocks of that request"},
      {PeerCloseReason::busy, "it is busy"},
      {PeerCloseReason::no_block_sharing, "it shares no blocks"}};
  for (unsigned value = 0; value < reasons.size(); ++value) {
    EXPECT_EQ(read(PeerKind::bye, wire_bytes({value})), reasons[value].first);
    EXPECT_EQ(peer_close_reason_name(reasons[value].first), reasons[value].second);
  }
  for (const unsigned value : {7U, 8U, 255U}) EXPECT_FALSE(read(PeerKind::bye, wire_bytes({value}))) << value;
  EXPECT_FALSE(read(PeerKind::bye, {}));
  EXPECT_FALSE(read(PeerKind::bye, wire_bytes({0, 0})));
  EXPECT_FALSE(read(PeerKind::gone, wire_bytes({0})));
  EXPECT_EQ(peer_close_reason_name(static_cast<PeerCloseReason>(7)), "?");
}

TEST(PeerWireDeathTest, WritesNoMessageThatNoPeerAccepts) {
  PeerFrameCodec codec(wire_secret());
  const PeerSession session = wire_session();
  WireBytes out;
  EXPECT_DEATH(codec.add_welcome(out, session, std::string(129, 'x')), "at most kMaxPeerIdBytes");
  EXPECT_DEATH(codec.add_keys(out, session, PeerKind::find, 1, {}), "1 to kMaxPeerKeys offload keys");
  EXPECT_DEATH(codec.add_keys(out, session, PeerKind::find, 1, std::vector<OffloadKey>(129)), "1 to kMaxPeerKeys offload keys");
  EXPECT_DEATH(codec.add_keys(out, session, PeerKind::find, 1, std::array{wire_key(1, 0x10000)}), "fits into 16 bits");
  EXPECT_DEATH(codec.add_found(out, session, {.number = 1, .has = std::vector<bool>(129)}), "at most kMaxPeerKeys entries");
  out = wire_fill(43, 0);
  EXPECT_DEATH(codec.seal_block(out, session, wire_key(1, 1), 40), "added a block of this size");
}

}  // namespace
}  // namespace quire::test
