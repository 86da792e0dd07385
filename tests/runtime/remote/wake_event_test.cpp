// Tests the event that wakes a thread out of poll(), and that the threads of this module close their descriptors when they end.
#include "runtime/remote/wake_event.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/remote/lease_server.h"
#include "runtime/remote/peer_cache_rig.h"
#include "runtime/remote/peer_fetcher.h"
#include "runtime/remote/remote_connection_pool.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

bool is_rung(const WakeEvent& event) {
  pollfd polled{.fd = event.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, 0) == 1;
}

TEST(WakeEventTest, StaysRungUntilItIsTaken) {
  const WakeEvent event;
  EXPECT_FALSE(is_rung(event));
  event.taken();
  EXPECT_FALSE(is_rung(event));
  for (int round = 0; round < 2; ++round) {
    event.ring();
    event.ring();
    EXPECT_TRUE(is_rung(event));
    EXPECT_TRUE(is_rung(event));
    event.taken();
    EXPECT_FALSE(is_rung(event)) << "several rings are taken together";
  }
}

std::ptrdiff_t num_open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(RemoteDescriptors, AreClosedWithTheirThread) {
  TestListener listener;
  const std::vector<std::function<void()>> uses = {
      [] { const WakeEvent event; },
      [&] {
        const auto taken = PeerServer::open({.host = "127.0.0.1", .port = listener.port(), .secret = {}, .engine_id = "e"});
        EXPECT_FALSE(taken.has_value());
      },
      [] {
        LeaseServer server;
        ScriptedPeer client(server.server->port());
        EXPECT_EQ(client.greet(), "lender");
      },
      [&] {
        PeerCache cache(cache_options({listener.port()}));
        AskedAnswer answer = begin_ask(cache, 1);
        ScriptedPeer peer(listener);
        peer.welcome();
        answer_find(peer);
        EXPECT_TRUE(in_time(std::move(answer)).is_whole);
      },
      [&] {
        PeerFetcher fetcher({.secret = std::vector(16, std::byte{1}), .fingerprint = tier_fingerprint(7), .block_bytes = 100});
        fetcher.release({.host = "127.0.0.1", .port = listener.port(), .engine_id = "producer", .request_id = "r"});
        ScriptedPeer producer(listener);
        producer.welcome();
      },
      [&] {
        RemoteConnectionPool pool({.address = address_of_port(listener.port()), .tls = std::make_shared<NetTls>(), .max_reply_bytes = 100});
        pool.submit({.key = "k",
                     .write =
                         [](std::vector<std::string>& words) {
                           words = {"GET", "k"};
                           return true;
                         },
                     .over = [](const RemoteReply&) {}});
        ScriptedPeer store(listener);
      }};
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const std::ptrdiff_t before = num_open_descriptors();
    uses[i]();
    EXPECT_EQ(num_open_descriptors(), before) << i;
  }
}

}  // namespace
}  // namespace quire::test
