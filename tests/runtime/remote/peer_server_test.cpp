// Tests a server that gives blocks, message by message: which clients are refused and why, which blocks of a lease are sent, and how a
// lease ends.
#include "runtime/remote/peer_server.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/remote/scripted_peer.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kLeaseBlock = 1000;

struct LeaseServer {
  explicit LeaseServer(double lease_s = 600.0, double timeout_s = 60.0)
      : server(PeerServer::open({.host = "127.0.0.1",
                                 .port = 0,
                                 .secret = std::vector(16, std::byte{1}),
                                 .fingerprint = tier_fingerprint(7),
                                 .engine_id = "lender",
                                 .lease_s = lease_s,
                                 .timeout_s = timeout_s,
                                 .handshake_s = 60.0})
                   .value()) {}
  void lend(std::uint64_t ticket, std::uint32_t num_blocks) {
    std::vector<PeerServer::Block> blocks;
    for (std::uint32_t i = 0; i < num_blocks; ++i)
      blocks.push_back({.name = tier_name(i), .bytes = kLeaseBlock, .copy = [this, i](std::span<std::byte> bytes) {
                          ++num_promised_copies;
                          std::ranges::copy(tier_block(i, kLeaseBlock), bytes.begin());
                          return true;
                        }});
    server->open_lease(ticket, "request" + std::to_string(ticket), std::move(blocks));
  }
  void keep(std::uint64_t ticket, std::uint32_t index, TierOutcome& outcome, std::atomic<int>& num_over, bool copies = true) {
    server->keep(ticket, index,
                 {.verb = TierJob::Verb::store,
                  .place = 0,
                  .name = tier_name(index),
                  .bytes = kLeaseBlock,
                  .copy =
                      [this, index, copies](std::span<std::byte> bytes) {
                        ++num_kept_copies;
                        std::ranges::copy(tier_block(index, kLeaseBlock), bytes.begin());
                        return copies;
                      },
                  .over =
                      [&](TierOutcome one) {
                        outcome = one;
                        ++num_over;
                      }});
  }
  [[nodiscard]] bool comes_to_leases(std::uint32_t count) const {
    return comes_true([&] { return server->stats().num_open_leases == count; });
  }
  std::atomic<int> num_promised_copies = 0, num_kept_copies = 0;
  std::unique_ptr<PeerServer> server;
};

// Expects blocks `first` to `end - 1` of a lease.
void expect_blocks(ScriptedPeer& consumer, std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t i = first; i < end; ++i) {
    const auto frame = consumer.next();
    ASSERT_TRUE(frame) << i;
    const auto bytes = consumer.codec.read_block(*frame, consumer.session, tier_name(i), i, kLeaseBlock);
    ASSERT_TRUE(bytes) << i;
    EXPECT_TRUE(std::ranges::equal(*bytes, tier_block(i, kLeaseBlock))) << i;
  }
}

TEST(PeerServerScript, SendsExactlyTheRequestedBlocks) {
  LeaseServer lender;
  lender.lend(1, 20);
  ScriptedPeer consumer(lender.server->port());
  EXPECT_EQ(consumer.greet(), "lender");
  std::uint32_t num_sent = 0;
  for (const auto& [first, count] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 20}, {19, 1}, {3, 9}, {0, 1}, {12, 8}}) {
    consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = first, .num_blocks = count});
    expect_blocks(consumer, first, first + count);
    num_sent += count;
  }
  // The next message is the answer to the next request, so no block too many came.
  consumer.ask(PeerKind::renew, {.request_id = "request1"});
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::served);
  EXPECT_TRUE(consumer.is_closed());
  const PeerServerStats stats = lender.server->stats();
  EXPECT_EQ(stats.num_sent, num_sent);
  EXPECT_EQ(stats.bytes_sent, std::uint64_t{num_sent} * kLeaseBlock);
  EXPECT_EQ(stats.num_open_leases, 1U) << "a renewed lease goes on";
  EXPECT_EQ(stats.num_leases, 1U);
  EXPECT_EQ(stats.num_refused, 0U);
  EXPECT_EQ(stats.num_evicted_clients, 0U);
  EXPECT_EQ(lender.num_promised_copies, static_cast<int>(num_sent));
}

TEST(PeerServerScript, ClosesTheConnectionOnAnInvalidRange) {
  LeaseServer lender;
  lender.lend(1, 20);
  for (const auto& [first, count] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 0}, {0, 21}, {20, 1}, {19, 2}, {20, 0}, {UINT32_MAX, 1}, {1, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}}) {
    ScriptedPeer consumer(lender.server->port());
    consumer.greet();
    consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = first, .num_blocks = count});
    EXPECT_TRUE(consumer.is_closed()) << first << " " << count;
  }
  EXPECT_EQ(lender.server->stats().num_sent, 0U);
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U);
}

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
  // An unknown request is no refusal of the client.
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

TEST(PeerServerScript, EndsALeaseAsServedWhenTheConsumerIsDone) {
  LeaseServer lender;
  lender.lend(1, 2);
  lender.lend(2, 2);
  std::array<TierOutcome, 2> outcomes{TierOutcome::failed, TierOutcome::failed};
  std::atomic<int> num_over = 0;
  for (std::uint32_t i = 0; i < 2; ++i) lender.keep(1, i, outcomes[i], num_over);
  EXPECT_EQ(num_over, 0);
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::done, {.request_id = "request1"});
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::served);
  EXPECT_TRUE(comes_true([&] { return num_over == 2; }));
  EXPECT_EQ(outcomes, (std::array{TierOutcome::done, TierOutcome::done}));
  EXPECT_TRUE(lender.comes_to_leases(1)) << "other leases go on";
  EXPECT_EQ(lender.server->stats().num_expired_leases, 0U);
  // The request id may be used again.
  ScriptedPeer late(lender.server->port());
  late.greet();
  late.ask(PeerKind::done, {.request_id = "request1"});
  EXPECT_EQ(late.next_bye(), PeerCloseReason::unknown_request);
  lender.lend(1, 1);
  EXPECT_EQ(lender.server->stats().num_leases, 3U);
}

TEST(PeerServerScript, CopiesKeptBlocksByTheirJobs) {
  LeaseServer lender;
  lender.lend(1, 3);
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  lender.keep(1, 1, outcome, num_over);
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = 0, .num_blocks = 3});
  expect_blocks(consumer, 0, 3);
  EXPECT_EQ(lender.num_promised_copies, 2);
  EXPECT_EQ(lender.num_kept_copies, 1);
  lender.server->end(1);
  EXPECT_TRUE(comes_true([&] { return num_over == 1; }));
  EXPECT_EQ(outcome, TierOutcome::done) << "a block was sent";
}

TEST(PeerServerScript, EndsALeaseWhoseBlockCannotBeCopied) {
  LeaseServer lender;
  lender.lend(1, 3);
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  lender.keep(1, 1, outcome, num_over, false);
  ScriptedPeer consumer(lender.server->port());
  consumer.greet();
  consumer.ask(PeerKind::read, {.request_id = "request1", .first_block = 0, .num_blocks = 3});
  expect_blocks(consumer, 0, 1);
  EXPECT_EQ(consumer.next_bye(), PeerCloseReason::unknown_request);
  EXPECT_TRUE(consumer.is_closed());
  EXPECT_TRUE(lender.comes_to_leases(0));
  EXPECT_TRUE(comes_true([&] { return num_over == 1; }));
  EXPECT_EQ(lender.server->stats().num_sent, 1U);
  EXPECT_EQ(lender.server->stats().num_refused, 1U);
}

TEST(PeerServerScript, CancelsBlocksOfALeaseThatWasNeverUsed) {
  LeaseServer lender;
  lender.lend(1, 1);
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  lender.keep(1, 0, outcome, num_over);
  lender.server->end(1);
  EXPECT_TRUE(comes_true([&] { return num_over == 1; }));
  EXPECT_EQ(outcome, TierOutcome::cancelled);
  EXPECT_TRUE(lender.comes_to_leases(0));
  // A block for a lease that is over ends immediately.
  outcome = TierOutcome::failed;
  lender.keep(1, 0, outcome, num_over);
  EXPECT_TRUE(comes_true([&] { return num_over == 2; }));
  EXPECT_EQ(outcome, TierOutcome::cancelled);
  lender.server->end(77);
  EXPECT_EQ(lender.server->stats().num_expired_leases, 0U);
  EXPECT_EQ(lender.num_kept_copies, 0);
}

TEST(PeerServerScript, EndsItsLeasesWhenItIsDestroyed) {
  TierOutcome outcome = TierOutcome::failed;
  std::atomic<int> num_over = 0;
  {
    LeaseServer lender;
    lender.lend(1, 1);
    lender.keep(1, 0, outcome, num_over);
  }
  EXPECT_EQ(num_over, 1);
  EXPECT_EQ(outcome, TierOutcome::cancelled);
}

TEST(PeerServerScript, ShortensPresentAndFutureLeasesButLengthensNone) {
  LeaseServer lender(600.0);
  lender.lend(1, 1);
  lender.server->expire_leases(5000.0);
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U);
  lender.server->expire_leases(0.01);
  EXPECT_TRUE(lender.comes_to_leases(0));
  EXPECT_EQ(lender.server->stats().num_expired_leases, 1U);
  lender.server->expire_leases(600.0);
  lender.lend(2, 1);
  EXPECT_TRUE(lender.comes_to_leases(0)) << "a longer limit does not replace the shorter one";
  EXPECT_EQ(lender.server->stats().num_expired_leases, 2U);
  LeaseServer brief(0.01);
  brief.server->expire_leases(600.0);
  brief.lend(1, 1);
  EXPECT_TRUE(brief.comes_to_leases(0));
}

// The server's thread waits without a limit until it has a lease or a connection.
TEST(PeerServerScript, ExpiresALeaseThatNobodyEverAsksFor) {
  LeaseServer lender(0.02);
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) {
    lender.lend(ticket, 1);
    EXPECT_TRUE(lender.comes_to_leases(0)) << ticket;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(lender.server->stats().num_expired_leases, 3U);
}

TEST(PeerServerScript, KeepsALeaseWhileItsBlocksAreRead) {
  LeaseServer lender(0.05, 600.0);
  lender.lend(1, 2);
  lender.lend(2, 2);
  // On a busy machine the lease may be over before the request.
  for (std::uint64_t ticket = 2;; ++ticket) {
    ScriptedPeer consumer(lender.server->port());
    consumer.greet();
    consumer.ask(PeerKind::read, {.request_id = "request" + std::to_string(ticket), .first_block = 0, .num_blocks = 1});
    const auto frame = consumer.next();
    ASSERT_TRUE(frame);
    if (frame->kind == PeerKind::block) break;
    ASSERT_LT(ticket, 50U);
    lender.lend(ticket + 1, 2);
  }
  EXPECT_TRUE(lender.comes_to_leases(1)) << "the lease that nobody reads expires";
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_EQ(lender.server->stats().num_open_leases, 1U) << "the consumer has more time after each block";
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
  // More blocks than the server sends in one turn.
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
