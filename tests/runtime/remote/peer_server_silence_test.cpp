// Tests how long a server that gives blocks waits for clients that send or read nothing.
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/peer_server.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Shares block 0 and lends it as "request1".
std::unique_ptr<PeerServer> impatient_server() {
  auto shelf = std::make_shared<ToyShelf>();
  shelf->put(0);
  auto server = PeerServer::open({.host = "127.0.0.1",
                                  .port = 0,
                                  .secret = std::vector(16, std::byte{1}),
                                  .fingerprint = tier_fingerprint(7),
                                  .engine_id = "impatient",
                                  .lease_s = 600.0,
                                  .block_source = shelf,
                                  .timeout_s = 0.3})
                    .value();
  server->open_lease(1, "request1", {{.name = tier_name(0), .bytes = kCacheBlock, .copy = [](std::span<std::byte> bytes) {
                                        std::ranges::copy(tier_block(0, kCacheBlock), bytes.begin());
                                        return true;
                                      }}});
  return server;
}

// Returns a client that has received block 0. On a busy machine the server may close the first connections before their first request.
std::unique_ptr<ScriptedPeer> client_with_block(const PeerServer& server, bool by_key) {
  for (int trial = 0; trial < 100; ++trial) {
    auto client = std::make_unique<ScriptedPeer>(server.port());
    if (client->greet() != "impatient") continue;
    if (by_key)
      client->codec.add_keys(client->out(), client->session, PeerKind::take, 0, std::vector{tier_name(0)});
    else
      client->codec.add_request(client->out(), client->session, PeerKind::read,
                                {.request_id = "request1", .first_block = 0, .num_blocks = 1});
    const auto frame = client->next();
    if (frame && client->codec.read_block(*frame, client->session, tier_name(0), 0, kCacheBlock)) return client;
  }
  ADD_FAILURE() << "no block came";
  return nullptr;
}

TEST(PeerServerSilence, ClosesAConsumerOfALeaseButNoClientThatAsksByKey) {
  const auto server = impatient_server();
  const auto asker = client_with_block(*server, true), reader = client_with_block(*server, false);
  ASSERT_TRUE(asker && reader);
  EXPECT_TRUE(reader->is_closed());
  // The asker has been silent for longer than the reader.
  asker->codec.add_keys(asker->out(), asker->session, PeerKind::find, 7, std::vector{tier_name(0)});
  const auto frame = asker->next();
  ASSERT_TRUE(frame);
  const auto found = asker->codec.read_found(*frame, asker->session);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->has, std::vector<bool>{true});
}

TEST(PeerServerSilence, ClosesAClientThatDoesNotReadItsBlocks) {
  constexpr std::uint32_t kRequests = 40;  // 46 MB, more than the buffers of a socket
  const auto server = impatient_server();
  const auto client = client_with_block(*server, true);
  ASSERT_TRUE(client);
  const std::vector<OffloadKey> names(kMaxPeerKeys, tier_name(0));
  for (std::uint32_t i = 0; i < kRequests; ++i)
    client->codec.add_keys(client->out(), client->session, PeerKind::take, i * kMaxPeerKeys, names);
  client->flush();
  // The server has not read all requests, so its close resets the connection.
  EXPECT_TRUE(comes_true([&] {
    pollfd polled{.fd = client->link.descriptor(), .events = 0, .revents = 0};
    return ::poll(&polled, 1, 0) == 1 && (polled.revents & (POLLERR | POLLHUP)) != 0;
  }));
  EXPECT_LT(server->stats().num_sent, kRequests * kMaxPeerKeys);
}

TEST(PeerServerSilence, WaitsForAClientThatReadsLater) {
  constexpr std::uint32_t kRequests = 20;  // 23 MB, more than the buffers of a socket
  Holder holder;
  holder.shelf->put(0);
  ScriptedPeer client(holder.server->port());
  ASSERT_EQ(client.greet(), "holder");
  const std::vector<OffloadKey> names(kMaxPeerKeys, tier_name(0));
  for (std::uint32_t i = 0; i < kRequests; ++i)
    client.codec.add_keys(client.out(), client.session, PeerKind::take, i * kMaxPeerKeys, names);
  client.flush();
  // The server sends until the buffers are full.
  std::uint64_t num_sent = 0;
  EXPECT_TRUE(comes_true(
      [&] { return std::exchange(num_sent, holder.server->stats().num_sent) == holder.server->stats().num_sent && num_sent > 0; }));
  for (std::uint32_t i = 0; i < kRequests * kMaxPeerKeys; ++i) {
    const auto frame = client.next();
    ASSERT_TRUE(frame) << i;
    ASSERT_TRUE(client.codec.read_block(*frame, client.session, tier_name(0), i, kCacheBlock)) << i;
  }
  EXPECT_EQ(holder.server->stats().num_sent, kRequests * kMaxPeerKeys);
}

}  // namespace
}  // namespace quire::test
