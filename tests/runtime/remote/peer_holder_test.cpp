// Tests which clients get which answers from a server that shares blocks by key.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "runtime/remote/peer_client_connection.h"
#include "runtime/remote/toy_shelf.h"

namespace quire::test {
namespace {

// A client with the key that can also send messages that PeerCache never sends.
class RawAsker {
 public:
  explicit RawAsker(std::uint16_t port) : line(address(port), tier_fingerprint(7), peer_block_payload(kCacheBlock)) {
    line.open();
    wait([&] { return line.state() == PeerClientConnection::State::open; });
  }
  // Returns the answer, or nullopt if the connection is closed.
  std::optional<PeerFrame> say(const PeerSession& session, PeerKind kind, std::uint32_t number, const std::vector<OffloadKey>& names) {
    seal.add_keys(line.out(), session, kind, number, names);
    return next();
  }
  std::optional<PeerFrame> next() {
    std::optional<PeerFrame> frame;
    wait([&] { return frame.has_value(); }, &frame);
    return frame;
  }

  PeerClientConnection line;
  PeerFrameCodec seal{std::vector(16, std::byte{1})};

 private:
  static RemoteAddress address(std::uint16_t port) {
    RemoteAddress at;
    at.host = "127.0.0.1";
    at.port = port;
    return at;
  }
  void wait(const std::function<bool()>& is_over, std::optional<PeerFrame>* frame = nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    while (!line.is_lost() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
      const std::optional<PeerFrame> next = line.advance(seal);
      if (frame != nullptr) *frame = next;
      if (is_over()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

TEST(PeerHolder, AnswersOnlyRequestsSealedForTheirConnection) {
  Holder holder;
  holder.shelf->put(1);
  RawAsker raw(holder.server->port()), other(holder.server->port());
  ASSERT_EQ(raw.line.state(), PeerClientConnection::State::open);
  // The keys are one of an unknown cache group, one that is not held, and one that occurs twice.
  OffloadKey nowhere = tier_name(1);
  nowhere.group = 9;
  const std::vector<OffloadKey> names = {nowhere, tier_name(5), tier_name(1), tier_name(1)};
  auto frame = raw.say(raw.line.session(), PeerKind::take, 40, names);
  ASSERT_TRUE(frame);
  EXPECT_EQ(raw.seal.read_gone(*frame, raw.line.session()), 40U);
  frame = raw.next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(raw.seal.read_gone(*frame, raw.line.session()), 41U);
  for (const std::uint32_t number : {42U, 43U}) {
    frame = raw.next();
    ASSERT_TRUE(frame);
    EXPECT_FALSE(raw.seal.read_block(*frame, raw.line.session(), tier_name(4), number, kCacheBlock))
        << "the block is sealed for another key";
    ASSERT_TRUE(raw.seal.read_block(*frame, raw.line.session(), tier_name(1), number, kCacheBlock));
  }
  // A message sealed for another connection is refused.
  EXPECT_FALSE(other.say(raw.line.session(), PeerKind::find, 0, {tier_name(1)}));
  EXPECT_TRUE(other.line.is_lost());
  EXPECT_EQ(other.line.lost_reason(), "it has another key");
  // These bytes are no message.
  RawAsker noise(holder.server->port());
  noise.line.out().assign(5000, std::byte{0xff});
  EXPECT_FALSE(noise.next());
  EXPECT_TRUE(noise.line.is_lost());
  EXPECT_TRUE(raw.say(raw.line.session(), PeerKind::find, 7, {tier_name(1)})) << "other connections continue";
  EXPECT_EQ(holder.server->stats().num_sent, 2U);
}

}  // namespace
}  // namespace quire::test
