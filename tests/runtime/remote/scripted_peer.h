#pragma once
// One side of a connection between two servers in the hands of a test: it reads and sends single messages, also wrong ones.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/stream.h"
#include "runtime/remote/peer_frame_stream.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/remote_address.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

inline RemoteAddress address_of_port(std::uint16_t port) {
  RemoteAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

// A listening socket. Connections wait in its backlog until the test accepts them.
class TestListener {
 public:
  TestListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(socket_, 64), 0);
    socklen_t size = sizeof address;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~TestListener() { close(socket_); }
  TestListener(const TestListener&) = delete;
  TestListener& operator=(const TestListener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Returns whether a connection waits to be accepted.
  [[nodiscard]] bool has_connection() const {
    pollfd polled{.fd = socket_, .events = POLLIN, .revents = 0};
    return ::poll(&polled, 1, 0) == 1;
  }
  // Waits for the next connection and returns its descriptor.
  int accept_one() {
    EXPECT_TRUE(comes_true([this] { return has_connection(); })) << "nobody connects";
    return accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  }

 private:
  const int socket_;
  std::uint16_t port_ = 0;
};

class ScriptedPeer {
 public:
  // Producer: accepts the next connection.
  explicit ScriptedPeer(TestListener& listener, std::uint8_t key = 1)
      : ScriptedPeer(std::make_unique<NetStream>(listener.accept_one()), key) {}
  // Consumer: connects to a server.
  explicit ScriptedPeer(std::uint16_t port, std::uint8_t key = 1)
      : ScriptedPeer(std::make_unique<NetStream>(address_of_port(port), std::make_shared<NetTls>()), key) {}

  [[nodiscard]] std::vector<std::byte>& out() { return link.out(); }
  // Sends what out() has.
  void flush() {
    EXPECT_TRUE(comes_true([this] { return !link.advance() || !link.has_output(); }));
  }
  // Returns the next message, valid until the next call; nullopt if the other side closes the connection before.
  std::optional<PeerFrame> next() {
    std::optional<PeerFrame> frame = link.next();
    const bool is_over = comes_true([&] {
      if (frame) return true;
      const bool is_open = link.advance();
      frame = link.next();
      return frame || !is_open;
    });
    EXPECT_TRUE(is_over) << "no message came";
    return frame;
  }
  // Returns whether the other side closes the connection without a further message.
  bool is_closed() { return !next().has_value(); }
  // Returns the reason if the next message is a bye.
  std::optional<PeerCloseReason> next_bye() {
    const std::optional<PeerFrame> frame = next();
    return frame ? PeerFrameCodec::read_bye(*frame) : std::nullopt;
  }

  // Producer: answers the greeting.
  void welcome(const std::string& engine_id = "producer") {
    const std::optional<PeerFrame> frame = next();
    ASSERT_TRUE(frame);
    const std::optional<PeerHello> hello = PeerFrameCodec::read_hello(*frame);
    ASSERT_TRUE(hello);
    session = {.fingerprint = hello->fingerprint, .consumer = hello->nonce, .producer = {}};
    session.producer.fill(std::byte{0x2b});
    codec.add_welcome(out(), session, engine_id);
    flush();
  }
  // Consumer: greets the server, and returns its engine id; empty if it refuses.
  std::string greet(std::uint8_t fingerprint = 7) {
    session.fingerprint = tier_fingerprint(fingerprint);
    session.consumer.fill(std::byte{0x3c});
    PeerFrameCodec::add_hello(out(), {.fingerprint = session.fingerprint, .nonce = session.consumer});
    const std::optional<PeerFrame> frame = next();
    const auto welcomed = frame ? codec.read_welcome(*frame, session) : std::nullopt;
    if (!welcomed) return {};
    session.producer = welcomed->nonce;
    return welcomed->engine_id;
  }
  // Consumer: sends a request.
  void ask(PeerKind kind, const PeerRequest& request) {
    codec.add_request(out(), session, kind, request);
    flush();
  }
  // Producer: returns the next request. All fields are zero if no request comes.
  std::pair<PeerKind, PeerRequest> next_request() {
    const std::optional<PeerFrame> frame = next();
    const auto request = frame ? codec.read_request(*frame, session) : std::nullopt;
    EXPECT_TRUE(request) << "no request came";
    return request ? std::pair(frame->kind, *request) : std::pair(PeerKind{}, PeerRequest{});
  }
  std::pair<PeerKind, PeerKeyList> next_keys() {
    const std::optional<PeerFrame> frame = next();
    const auto keys = frame ? codec.read_keys(*frame, session) : std::nullopt;
    EXPECT_TRUE(keys) << "no list of keys came";
    return keys ? std::pair(frame->kind, *keys) : std::pair(PeerKind{}, PeerKeyList{});
  }
  // Producer: sends a block.
  void send_block(std::uint32_t index, const OffloadKey& name, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, PeerFrameCodec::add_block(out(), index, bytes.size()).begin());
    codec.seal_block(out(), session, name, bytes.size());
    flush();
  }

  PeerFrameStream link;
  PeerFrameCodec codec;
  PeerSession session;

 private:
  ScriptedPeer(std::unique_ptr<NetStream> stream, std::uint8_t key)
      : link(std::move(stream), 20'000), codec(std::vector(16, std::byte{key})) {}
};

}  // namespace quire::test
