// Tests a server that gives blocks, message by message: which clients are refused and why, and its answers to lists of keys.
#include "runtime/remote/peer_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/lease_server.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

TEST(PeerServerScript, SaysWhyItRefuses) {
  LeaseServer lender;
  lender.lend(1, 2);
  std::uint64_t num_refused = 0;
  const auto refuses = [&](const char* what, PeerCloseReason reason, const std::function<void(ScriptedPeer&)>& say,
                           bool is_counted = true) {
    ScriptedPeer consumer(lender.server->port());
    say(consumer);
    consumer.flush();
    EXPECT_EQ(consumer.next_bye(), reason) << what;
    EXPECT_TRUE(consumer.is_closed()) << what;
    num_refused += is_counted ? 1 : 0;
    EXPECT_EQ(lender.server->stats().num_refused, num_refused) << what;
  };
  refuses("version", PeerCloseReason::other_version,
          [](ScriptedPeer& consumer) { PeerFrameCodec::add_hello(consumer.out(), {.version = 2, .fingerprint = tier_fingerprint(7)}); });
  refuses("model", PeerCloseReason::other_model,
          [](ScriptedPeer& consumer) { PeerFrameCodec::add_hello(consumer.out(), {.fingerprint = tier_fingerprint(8)}); });
  refuses("two greetings", PeerCloseReason::not_verified, [](ScriptedPeer& consumer) {
    consumer.greet();
    PeerFrameCodec::add_hello(consumer.out(), {.fingerprint = tier_fingerprint(7)});
  });
  refuses("another key", PeerCloseReason::not_verified, [](ScriptedPeer& consumer) {
    consumer.greet();
    PeerFrameCodec other(std::vector(16, std::byte{2}));
    other.add_request(consumer.out(), consumer.session, PeerKind::done, {.request_id = "request1"});
  });
  refuses("another key for keys", PeerCloseReason::not_verified, [](ScriptedPeer& consumer) {
    consumer.greet();
    PeerFrameCodec other(std::vector(16, std::byte{2}));
    other.add_keys(consumer.out(), consumer.session, PeerKind::find, 0, std::vector{tier_name(1)});
  });
  for (const PeerKind kind : {PeerKind::find, PeerKind::take})
    refuses("keys", PeerCloseReason::no_block_sharing, [&](ScriptedPeer& consumer) {
      consumer.greet();
      consumer.codec.add_keys(consumer.out(), consumer.session, kind, 0, std::vector{tier_name(1)});
    });
  // If the request is unknown, the server does not count the client as refused.
  for (const PeerKind kind : {PeerKind::read, PeerKind::done, PeerKind::renew})
    refuses(
        "unknown", PeerCloseReason::unknown_request,
        [&](ScriptedPeer& consumer) {
          consumer.greet();
          consumer.codec.add_request(consumer.out(), consumer.session, kind, {.request_id = "request2", .first_block = 0, .num_blocks = 1});
        },
        false);
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U);
}

TEST(PeerServerScript, ClosesConnectionsWithoutAGreeting) {
  LeaseServer lender;
  const std::vector<std::function<void(ScriptedPeer&)>> cases = {
      [](ScriptedPeer& consumer) { consumer.codec.add_request(consumer.out(), consumer.session, PeerKind::done, {.request_id = "r"}); },
      [](ScriptedPeer& consumer) {
        consumer.codec.add_keys(consumer.out(), consumer.session, PeerKind::find, 0, std::vector{tier_name(1)});
      },
      [](ScriptedPeer& consumer) { PeerFrameCodec::add_bye(consumer.out(), PeerCloseReason::served); },
      [](ScriptedPeer& consumer) { consumer.out().assign(9, std::byte{0xff}); }};
  for (const auto& say : cases) {
    ScriptedPeer consumer(lender.server->port());
    say(consumer);
    consumer.flush();
    EXPECT_TRUE(consumer.is_closed());
  }
  EXPECT_EQ(lender.server->stats().num_refused, 0U);
}

TEST(PeerServerScript, RefusesClientsWhileAllPlacesAreTaken) {
  constexpr std::size_t kPlaces = 64;
  Holder holder;
  std::vector<std::unique_ptr<ScriptedPeer>> clients;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    ScriptedPeer& client = *clients.emplace_back(std::make_unique<ScriptedPeer>(holder.server->port()));
    ASSERT_EQ(client.greet(), "holder");
    client.codec.add_keys(client.out(), client.session, PeerKind::find, 0, std::vector{tier_name(1)});
    const auto frame = client.next();
    ASSERT_TRUE(frame);
    ASSERT_TRUE(client.codec.read_found(*frame, client.session)) << i;
  }
  ScriptedPeer last(holder.server->port());
  EXPECT_EQ(last.next_bye(), PeerCloseReason::busy);
  EXPECT_TRUE(last.is_closed());
  EXPECT_EQ(holder.server->stats().num_refused, 1U);
  EXPECT_EQ(holder.server->stats().num_evicted_clients, 0U);
  // A place that comes free is given to the next client.
  clients.pop_back();
  EXPECT_TRUE(comes_true([&] {
    ScriptedPeer next(holder.server->port());
    return next.greet() == "holder";
  }));
}

TEST(PeerServerScript, ClosesTheOldestUngreetedConnectionFirst) {
  constexpr std::size_t kPlaces = 64, kGreeted = 2, kVerified = 2;
  Holder holder;
  std::vector<std::unique_ptr<ScriptedPeer>> clients;
  const auto connect = [&]() -> ScriptedPeer& { return *clients.emplace_back(std::make_unique<ScriptedPeer>(holder.server->port())); };
  for (std::size_t i = 0; i < kGreeted + kVerified; ++i) {
    ScriptedPeer& client = connect();
    ASSERT_EQ(client.greet(), "holder");
    if (i >= kVerified) continue;
    client.codec.add_keys(client.out(), client.session, PeerKind::find, 0, std::vector{tier_name(1)});
    ASSERT_TRUE(client.next());
  }
  while (clients.size() < kPlaces) connect();
  const auto evicts = [&](std::size_t index) {
    const std::uint64_t before = holder.server->stats().num_evicted_clients;
    auto newest = std::make_unique<ScriptedPeer>(holder.server->port());
    EXPECT_EQ(newest->greet(), "holder");
    newest->codec.add_keys(newest->out(), newest->session, PeerKind::find, 0, std::vector{tier_name(1)});
    EXPECT_TRUE(newest->next());
    EXPECT_EQ(holder.server->stats().num_evicted_clients, before + 1);
    EXPECT_TRUE(clients[index]->is_closed()) << index;
    clients.push_back(std::move(newest));
  };
  evicts(kVerified + kGreeted);
  evicts(kVerified + kGreeted + 1);
  for (std::size_t i = kVerified + kGreeted + 2; i < kPlaces; ++i) evicts(i);
  evicts(kVerified);
  evicts(kVerified + 1);
  ScriptedPeer last(holder.server->port());
  EXPECT_EQ(last.next_bye(), PeerCloseReason::busy) << "clients that have proved the key stay";
  EXPECT_EQ(holder.server->stats().num_evicted_clients, kPlaces - kVerified);
}

TEST(PeerServerScript, KeepsTheConsumerOfALeaseWhileClientsThatProveNothingConnect) {
  constexpr std::size_t kPlaces = 64;
  LeaseServer lender;
  lender.lend(1, 1);
  std::vector<std::unique_ptr<ScriptedPeer>> clients;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    clients.push_back(std::make_unique<ScriptedPeer>(lender.server->port()));
    ASSERT_EQ(clients.back()->greet(), "lender");
    if (i > 0) continue;
    clients[0]->ask(PeerKind::read, {.request_id = "request1", .first_block = 0, .num_blocks = 1});
    ASSERT_TRUE(clients[0]->next());
  }
  ScriptedPeer newest(lender.server->port());
  EXPECT_EQ(newest.greet(), "lender");
  EXPECT_TRUE(clients[1]->is_closed()) << "the oldest that has proved nothing";
  clients[0]->ask(PeerKind::renew, {.request_id = "request1"});
  EXPECT_EQ(clients[0]->next_bye(), PeerCloseReason::served);
  EXPECT_EQ(lender.server->stats().num_evicted_clients, 1U);
}

TEST(PeerServerScript, AnswersKeysInTheirOrderAndNumbersItsBlocks) {
  Holder holder;
  for (const std::uint64_t number : {0U, 2U, 3U, 30U}) holder.shelf->put(number);
  ScriptedPeer consumer(holder.server->port());
  consumer.greet();
  std::vector<OffloadKey> names;
  for (std::uint64_t number = 0; number < 40; ++number) names.push_back(tier_name(number));
  consumer.codec.add_keys(consumer.out(), consumer.session, PeerKind::find, 0xfffffff0, names);
  auto frame = consumer.next();
  ASSERT_TRUE(frame);
  const auto found = consumer.codec.read_found(*frame, consumer.session);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->number, 0xfffffff0U);
  ASSERT_EQ(found->has.size(), 40U);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(found->has[i], i == 0 || i == 2 || i == 3 || i == 30) << i;
  // The consumer asks for more blocks than the server sends in one turn.
  for (int round = 0; round < 2; ++round) {
    consumer.codec.add_keys(consumer.out(), consumer.session, PeerKind::take, 100, names);
    for (std::uint32_t i = 0; i < 40; ++i) {
      frame = consumer.next();
      ASSERT_TRUE(frame) << i;
      if (i == 0 || i == 2 || i == 3 || i == 30) {
        const auto bytes = consumer.codec.read_block(*frame, consumer.session, names[i], 100 + i, shelf_bytes_of(i));
        ASSERT_TRUE(bytes) << i;
        EXPECT_TRUE(std::ranges::equal(*bytes, tier_block(i, shelf_bytes_of(i)))) << i;
      } else {
        EXPECT_EQ(consumer.codec.read_gone(*frame, consumer.session), 100 + i);
      }
    }
  }
  const PeerServerStats stats = holder.server->stats();
  EXPECT_EQ(stats.num_sent, 8U);
  EXPECT_EQ(stats.bytes_sent, 2 * (3 * kCacheBlock + kCacheBlock / 2));
  EXPECT_EQ(stats.num_refused, 0U);
}

TEST(PeerServerScript, AnswersManyQuestionsThatComeAtOnce) {
  Holder holder;
  holder.shelf->put(1);
  ScriptedPeer consumer(holder.server->port());
  consumer.greet();
  constexpr std::uint32_t kQuestions = 200;
  for (std::uint32_t i = 0; i < kQuestions; ++i)
    consumer.codec.add_keys(consumer.out(), consumer.session, PeerKind::find, i, std::vector{tier_name(i % 2)});
  for (std::uint32_t i = 0; i < kQuestions; ++i) {
    const auto frame = consumer.next();
    ASSERT_TRUE(frame) << i;
    const auto found = consumer.codec.read_found(*frame, consumer.session);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->number, i);
    EXPECT_EQ(found->has, std::vector<bool>{i % 2 == 1});
  }
}

TEST(PeerServerScript, ClosesAConsumerThatRequestsNothing) {
  LeaseServer lender(600.0, 0.2);
  ScriptedPeer idle(lender.server->port());
  EXPECT_EQ(idle.greet(), "lender");
  EXPECT_TRUE(idle.is_closed()) << "a client without a request is closed after the timeout";
}

TEST(PeerServerScript, ExplainsWhereItCannotListen) {
  const auto error_of = [](const std::string& host, std::uint16_t port) {
    const auto opened = PeerServer::open({.host = host, .port = port, .secret = {}, .engine_id = "e"});
    return opened ? std::string("it listens") : opened.error().to_string();
  };
  EXPECT_TRUE(error_of("no such host.invalid", 0).starts_with("kv_host: cannot resolve no such host.invalid: "))
      << error_of("x.invalid", 0);
  EXPECT_TRUE(error_of("no such host.invalid", 0).ends_with("; use an address of this machine"));
  EXPECT_TRUE(error_of("192.0.2.1", 0).starts_with("kv_host: cannot listen on 192.0.2.1:0: "));
  const LeaseServer lender;
  const std::string taken = error_of("127.0.0.1", lender.server->port());
  EXPECT_TRUE(taken.starts_with("kv_port: cannot listen on 127.0.0.1:" + std::to_string(lender.server->port()) + ": ")) << taken;
  EXPECT_TRUE(taken.ends_with("; use another port, or 0 for any free port")) << taken;
  EXPECT_NE(lender.server->port(), 0);
}

}  // namespace
}  // namespace quire::test
