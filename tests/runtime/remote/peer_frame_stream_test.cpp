// Tests the connection between two servers over a pair of sockets, and the client's side of its greeting.
#include "runtime/remote/peer_frame_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/peer_client_connection.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::size_t kStreamBlock = 900;

struct StreamPair {
  explicit StreamPair(std::size_t max_payload) {
    std::array<int, 2> both{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()), 0);
    left = std::make_unique<PeerFrameStream>(std::make_unique<NetStream>(both[0]), max_payload);
    right = std::make_unique<PeerFrameStream>(std::make_unique<NetStream>(both[1]), max_payload);
  }
  std::unique_ptr<PeerFrameStream> left, right;
};

TEST(PeerFrameStream, KeepsOutputThatTheSocketDoesNotTakeYet) {
  constexpr std::uint32_t kFrames = 3000;
  StreamPair pair(peer_block_payload(kStreamBlock));
  PeerFrameCodec codec(std::vector(16, std::byte{1}));
  const PeerSession session;
  EXPECT_FALSE(pair.left->has_output());
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    std::ranges::copy(tier_block(i % 7, kStreamBlock), PeerFrameCodec::add_block(pair.left->out(), i, kStreamBlock).begin());
    codec.seal_block(pair.left->out(), session, tier_name(i % 7), kStreamBlock);
  }
  EXPECT_TRUE(pair.left->has_output());
  ASSERT_TRUE(pair.left->advance()) << "a full socket is no loss";
  ASSERT_TRUE(pair.left->has_output()) << "the test covers too few cases";
  EXPECT_EQ(pair.left->events(), POLLIN | POLLOUT);
  std::uint32_t num_read = 0;
  const bool all_came = comes_true([&] {
    for (int turn = 0; turn < 500; ++turn) {
      EXPECT_TRUE(pair.left->advance());
      EXPECT_TRUE(pair.right->advance());
      while (const auto frame = pair.right->next()) {
        EXPECT_TRUE(codec.read_block(*frame, session, tier_name(num_read % 7), num_read, kStreamBlock)) << num_read;
        ++num_read;
      }
    }
    return num_read == kFrames || testing::Test::HasFailure();
  });
  EXPECT_TRUE(all_came);
  EXPECT_FALSE(pair.left->has_output());
  EXPECT_TRUE(pair.left->out().empty()) << "the buffer begins again";
  EXPECT_EQ(pair.left->events(), POLLIN);
  EXPECT_EQ(pair.left->events(true), POLLIN | POLLOUT);
  EXPECT_FALSE(pair.left->is_lost() || pair.right->is_lost());
  PeerFrameCodec::add_bye(pair.left->out(), PeerCloseReason::busy);
  EXPECT_TRUE(pair.left->advance());
  EXPECT_TRUE(pair.right->advance());
  const auto last = pair.right->next();
  ASSERT_TRUE(last);
  EXPECT_EQ(PeerFrameCodec::read_bye(*last), PeerCloseReason::busy);
}

TEST(PeerFrameStream, LeavesBytesInTheSocketWhileAWholeFrameWaits) {
  StreamPair pair(1);
  PeerFrameCodec::add_bye(pair.left->out(), PeerCloseReason::busy);
  PeerFrameCodec::add_bye(pair.left->out(), PeerCloseReason::served);
  ASSERT_TRUE(pair.left->advance());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pair.right->advance()) << "the buffer is full";
  auto frame = pair.right->next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(PeerFrameCodec::read_bye(*frame), PeerCloseReason::busy);
  EXPECT_FALSE(pair.right->next());
  EXPECT_TRUE(pair.right->advance());
  frame = pair.right->next();
  ASSERT_TRUE(frame);
  EXPECT_EQ(PeerFrameCodec::read_bye(*frame), PeerCloseReason::served);
}

TEST(PeerFrameStream, IsLostWhenTheOtherSideCloses) {
  StreamPair pair(16);
  PeerFrameCodec::add_bye(pair.left->out(), PeerCloseReason::busy);
  ASSERT_TRUE(pair.left->advance());
  EXPECT_TRUE(pair.right->advance());
  EXPECT_GE(pair.right->descriptor(), 0);
  pair.left.reset();
  EXPECT_FALSE(pair.right->advance());
  EXPECT_TRUE(pair.right->is_lost());
  EXPECT_EQ(pair.right->lost_reason(), "the connection was closed");
  EXPECT_FALSE(pair.right->advance());
  const auto frame = pair.right->next();
  ASSERT_TRUE(frame) << "a message that came before still counts";
  EXPECT_EQ(PeerFrameCodec::read_bye(*frame), PeerCloseReason::busy);
}

TEST(PeerFrameStream, IsLostWhenWritingFails) {
  StreamPair pair(16);
  pair.right.reset();
  PeerFrameCodec::add_bye(pair.left->out(), PeerCloseReason::busy);
  EXPECT_FALSE(pair.left->advance());
  EXPECT_TRUE(pair.left->is_lost());
}

TEST(PeerFrameStream, IsLostWhenOnlyItsOutputFails) {
  StreamPair pair(16);
  EXPECT_EQ(shutdown(pair.left->descriptor(), SHUT_WR), 0);
  PeerFrameCodec::add_bye(pair.left->out(), PeerCloseReason::busy);
  EXPECT_FALSE(pair.left->advance());
  EXPECT_TRUE(pair.left->is_lost());
}

TEST(PeerFrameStream, IsLostAfterAnInvalidMessage) {
  StreamPair pair(16);
  pair.left->out().assign(5, std::byte{0xff});
  ASSERT_TRUE(pair.left->advance());
  EXPECT_TRUE(pair.right->advance()) << "the bytes were not looked at yet";
  EXPECT_FALSE(pair.right->next());
  EXPECT_TRUE(pair.right->is_lost());
  EXPECT_EQ(pair.right->lost_reason(), "it sent an invalid message");
  EXPECT_FALSE(pair.right->advance());
}

struct GreetingClient {
  explicit GreetingClient(const TestListener& listener) : connection(address_of_port(listener.port()), tier_fingerprint(7), 2000) {}
  // Continues until the condition is true, and returns the last message.
  std::optional<PeerFrame> until(const std::function<bool()>& is_over) {
    std::optional<PeerFrame> frame;
    EXPECT_TRUE(comes_true([&] {
      frame = connection.advance(codec);
      return frame || is_over();
    }));
    return frame;
  }
  bool comes_open() {
    until([&] { return connection.state() == PeerClientConnection::State::open || connection.is_lost(); });
    return connection.state() == PeerClientConnection::State::open;
  }
  std::string reason() {
    until([&] { return connection.is_lost(); });
    return connection.lost_reason();
  }
  PeerClientConnection connection;
  PeerFrameCodec codec{std::vector(16, std::byte{1})};
};

TEST(PeerClientConnection, GreetsAndThenReturnsMessages) {
  TestListener listener;
  GreetingClient client(listener);
  EXPECT_EQ(client.connection.state(), PeerClientConnection::State::closed);
  EXPECT_EQ(client.connection.descriptor(), -1);
  EXPECT_EQ(client.connection.events(), 0);
  EXPECT_FALSE(client.connection.is_lost());
  EXPECT_FALSE(client.connection.advance(client.codec));
  for (int round = 0; round < 2; ++round) {
    client.connection.open();
    EXPECT_EQ(client.connection.state(), PeerClientConnection::State::greeting);
    EXPECT_GE(client.connection.descriptor(), 0);
    EXPECT_NE(client.connection.events(), 0);
    ScriptedPeer producer(listener);
    EXPECT_TRUE(comes_true([&] {
      client.connection.advance(client.codec);
      producer.link.advance();
      return client.connection.events() == POLLIN;
    }));
    producer.welcome(round == 0 ? "first" : "second");
    EXPECT_TRUE(client.comes_open());
    EXPECT_EQ(client.connection.engine_id(), round == 0 ? "first" : "second");
    EXPECT_EQ(client.connection.session().fingerprint, tier_fingerprint(7));
    EXPECT_EQ(client.connection.session().consumer, producer.session.consumer);
    EXPECT_EQ(client.connection.session().producer, producer.session.producer);
    producer.codec.add_gone(producer.out(), producer.session, 1);
    producer.codec.add_gone(producer.out(), producer.session, 2);
    producer.flush();
    for (const std::uint32_t number : {1U, 2U}) {
      const auto frame = client.until([] { return false; });
      ASSERT_TRUE(frame);
      EXPECT_EQ(client.codec.read_gone(*frame, client.connection.session()), number);
    }
    EXPECT_FALSE(client.connection.is_lost());
    client.connection.close();
    EXPECT_EQ(client.connection.state(), PeerClientConnection::State::closed);
    EXPECT_EQ(client.connection.descriptor(), -1);
    EXPECT_TRUE(producer.is_closed());
  }
}

TEST(PeerClientConnection, DrawsAnotherNonceForEachConnection) {
  TestListener listener;
  GreetingClient client(listener);
  std::vector<PeerNonce> nonces;
  for (int i = 0; i < 3; ++i) {
    client.connection.open();
    nonces.push_back(client.connection.session().consumer);
    EXPECT_EQ(client.connection.session().producer, PeerNonce{});
    client.connection.close();
  }
  EXPECT_NE(nonces[0], nonces[1]);
  EXPECT_NE(nonces[1], nonces[2]);
  EXPECT_NE(nonces[0], PeerNonce{});
}

TEST(PeerClientConnection, ReportsWhyItIsLost) {
  const std::vector<std::pair<const char*, std::function<void(ScriptedPeer&)>>> cases = {
      {"it is busy", [](ScriptedPeer& peer) { PeerFrameCodec::add_bye(peer.out(), PeerCloseReason::busy); }},
      {"it has another key", [](ScriptedPeer& peer) { PeerFrameCodec::add_bye(peer.out(), PeerCloseReason::not_verified); }},
      {"it sent an invalid message",
       [](ScriptedPeer& peer) {
         PeerFrameCodec::add_bye(peer.out(), PeerCloseReason::busy);
         peer.out().back() = std::byte{7};
       }},
      {"it sent an invalid message", [](ScriptedPeer& peer) { peer.out().assign(5, std::byte{0xff}); }},
      {"its answer failed verification: it has another key",
       [](ScriptedPeer& peer) {
         PeerFrameCodec other(std::vector(16, std::byte{2}));
         other.add_welcome(peer.out(), peer.session, "producer");
       }},
      {"its answer failed verification: it has another key", [](ScriptedPeer& peer) { peer.codec.add_gone(peer.out(), peer.session, 1); }},
  };
  for (const auto& [reason, answer] : cases) {
    TestListener listener;
    GreetingClient client(listener);
    client.connection.open();
    ScriptedPeer producer(listener);
    answer(producer);
    producer.flush();
    EXPECT_EQ(client.reason(), reason);
    EXPECT_FALSE(client.connection.advance(client.codec));
    EXPECT_NE(client.connection.state(), PeerClientConnection::State::closed) << "its owner closes it";
    client.connection.close();
    EXPECT_FALSE(client.connection.is_lost());
    // The next connection begins without the reason of the last one.
    client.connection.open();
    EXPECT_FALSE(client.connection.is_lost());
    ScriptedPeer good(listener);
    EXPECT_TRUE(comes_true([&] {
      client.connection.advance(client.codec);
      return client.connection.events() == POLLIN;
    }));
    good.welcome();
    EXPECT_TRUE(client.comes_open());
  }
}

TEST(PeerClientConnection, ReportsAByeAndACloseOfAnOpenConnection) {
  for (const bool says_bye : {true, false}) {
    TestListener listener;
    GreetingClient client(listener);
    client.connection.open();
    auto producer = std::make_unique<ScriptedPeer>(listener);
    EXPECT_TRUE(comes_true([&] {
      client.connection.advance(client.codec);
      return client.connection.events() == POLLIN;
    }));
    producer->welcome();
    ASSERT_TRUE(client.comes_open());
    if (says_bye) {
      PeerFrameCodec::add_bye(producer->out(), PeerCloseReason::unknown_request);
      producer->flush();
    }
    producer.reset();
    EXPECT_EQ(client.reason(), says_bye ? "it holds no blocks of that request" : "the connection was closed");
  }
}

}  // namespace
}  // namespace quire::test
