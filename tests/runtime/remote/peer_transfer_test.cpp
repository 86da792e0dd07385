// Tests transports that copy blocks from one server's cache to another's. Loaded blocks equal the kept blocks, or they are reported as bad.
// A lease ends when the consumer has its blocks, releases them or never connects. No transfer waits long for a peer that is gone, stalls or
// lies.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "runtime/remote/peer_cache.h"
#include "runtime/remote/peer_relay.h"
#include "runtime/remote/peer_store.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/toy_cache.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kToyBlock = 9000;
constexpr std::uint32_t kNumBlocks = 20;

struct PeerSetup {
  std::uint8_t key = 1, fingerprint = 7;
  double lease_s = 60.0;
  std::string engine_id = "producer";
};

// A server with its cache that keeps and loads blocks.
class PeerSide {
 public:
  explicit PeerSide(const PeerSetup& setup = {})
      : store_(
            std::make_shared<PeerStore>(PeerServer::open({.host = "127.0.0.1",
                                                          .port = 0,
                                                          .secret = std::vector(16, std::byte{setup.key}),
                                                          .fingerprint = tier_fingerprint(setup.fingerprint),
                                                          .engine_id = setup.engine_id,
                                                          .lease_s = setup.lease_s})
                                            .value(),
                                        std::make_unique<PeerFetcher>(PeerFetcherOptions{.secret = std::vector(16, std::byte{setup.key}),
                                                                                         .fingerprint = tier_fingerprint(setup.fingerprint),
                                                                                         .block_bytes = kToyBlock,
                                                                                         .timeout_s = 0.5}),
                                        200, kToyBlock)),
        transport(store_, 1.0, true, 1e6) {
    transport.attach(cache.pages(), [] {});
  }
  ~PeerSide() { transport.detach(); }

  PeerStore& store() { return *store_; }
  // Keeps blocks 1 to kNumBlocks, filled with the numbers from `number` on.
  void keep(std::uint64_t ticket, const std::string& request_id, std::uint64_t number = 0) {
    promise(ticket, request_id, number);
    start(ticket, TransferDirection::store, 0, number, kNumBlocks);
  }
  // Promises the blocks without a transfer that keeps them.
  void promise(std::uint64_t ticket, const std::string& request_id, std::uint64_t number = 0) {
    std::vector<PeerServer::Block> blocks;
    for (std::uint32_t i = 0; i < kNumBlocks; ++i) {
      cache.fill(BlockId{1 + i}, number + i);
      blocks.push_back({.name = name_of(number + i), .bytes = kToyBlock, .copy = [this, i](std::span<std::byte> bytes) {
                          return transport.read_block(0, BlockId{1 + i}, bytes);
                        }});
    }
    store_->server()->open_lease(ticket, request_id, std::move(blocks));
  }
  void load(std::uint64_t ticket, PeerSource source, std::uint32_t first = 0, std::uint64_t number = 0) {
    store_->fetcher()->expect(ticket, std::move(source), first, kNumBlocks - first);
    start(ticket, TransferDirection::load, first, number, kNumBlocks - first);
  }
  PeerSource source(const std::string& request_id) {
    return {.host = "127.0.0.1", .port = store_->server()->port(), .engine_id = "producer", .request_id = request_id};
  }
  TransferCompletion end_of(std::uint64_t ticket) {
    transport.wait(TransferId{ticket});
    collect();
    EXPECT_TRUE(over_.contains(ticket)) << "no end was reported";
    TransferCompletion over = over_[ticket].first;
    over.bad_blocks = over_[ticket].second;
    return over;
  }
  // Returns whether the transfer ends in time. It does not call wait(), which would end a lease.
  bool is_over(std::uint64_t ticket, double seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      collect();
      if (over_.contains(ticket)) return true;
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  bool holds_all(std::uint32_t first = 0, std::uint64_t number = 0) {
    bool holds = true;
    for (std::uint32_t i = first; i < kNumBlocks; ++i) holds = holds && cache.holds(BlockId{1 + i}, number + i, 0);
    return holds;
  }

  ToyCache cache;

 private:
  static OffloadKey name_of(std::uint64_t number) {
    OffloadKey name = tier_name(number);
    name.group = 0;
    return name;
  }
  void collect() {
    std::vector<TransferCompletion> all;
    transport.poll(all);
    for (const TransferCompletion& one : all) over_[one.transfer.value] = {one, std::vector(one.bad_blocks.begin(), one.bad_blocks.end())};
  }
  void start(std::uint64_t ticket, TransferDirection direction, std::uint32_t first, std::uint64_t number, std::uint32_t count) {
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto place = static_cast<std::uint32_t>((ticket * kNumBlocks + i) % 200);
      blocks.push_back(BlockId{1 + first + i});
      if (direction == TransferDirection::store) cache.fill(blocks.back(), number + first + i);
      store_->use(place, {.ticket = ticket, .index = i});
      places.push_back(transport.assign(place, name_of(number + first + i)));
    }
    transport.start({.id = TransferId{ticket},
                     .request = {},
                     .direction = direction,
                     .need = TransferNeed::nothing,
                     .group = 0,
                     .blocks = blocks,
                     .places = places});
  }

  std::shared_ptr<PeerStore> store_;
  std::map<std::uint64_t, std::pair<TransferCompletion, std::vector<BlockId>>> over_;  // by ticket

 public:
  StoreTransport transport;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(PeerTransfer, LoadsBlocksAndEndsTheLease) {
  PeerSide producer, consumer;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    producer.keep(round, "request", 100 * round);
    const auto first = static_cast<std::uint32_t>(5 * (round - 1));  // the consumer does not request blocks that it has already
    consumer.load(round, producer.source("request"), first, 100 * round);
    const TransferCompletion loaded = consumer.end_of(round);
    EXPECT_EQ(loaded.outcome, TransferOutcome::done);
    EXPECT_EQ(loaded.bytes, (kNumBlocks - first) * kToyBlock);
    EXPECT_TRUE(consumer.holds_all(first, 100 * round));
    EXPECT_TRUE(producer.is_over(round, kMuchTooLong_s));
  }
  EXPECT_EQ(producer.store().server()->stats().num_sent, 45U);
  EXPECT_EQ(producer.store().server()->stats().bytes_sent, 45 * kToyBlock);
  EXPECT_EQ(consumer.store().fetcher()->stats().bytes_loaded, 45 * kToyBlock);
  EXPECT_EQ(producer.store().server()->stats().num_open_leases, 0U);
  while (consumer.store().fetcher()->num_open() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(PeerTransfer, ServesPromisedBlocksUntilTheLeaseEnds) {
  PeerSide producer, consumer;
  producer.promise(1, "request");
  consumer.load(1, producer.source("request"));
  EXPECT_EQ(consumer.end_of(1).outcome, TransferOutcome::done);
  EXPECT_TRUE(consumer.holds_all());
  producer.promise(2, "ended");
  producer.store().server()->end(2);
  for (std::uint32_t i = 0; i < kNumBlocks; ++i) producer.cache.fill(BlockId{1 + i}, 999);
  consumer.load(2, producer.source("ended"));
  EXPECT_EQ(consumer.end_of(2).outcome, TransferOutcome::failed);
}

// Blocks are overwritten while a consumer reads them. It must get their old content or a failure.
TEST(PeerTransfer, EndWaitsForACopyInFlight) {
  PeerSide producer, consumer;
  std::uint32_t num_loaded = 0;
  for (std::uint64_t ticket = 1; ticket <= 60; ++ticket) {
    producer.promise(ticket, "request" + std::to_string(ticket), 100 * ticket);
    consumer.load(ticket, producer.source("request" + std::to_string(ticket)), 0, 100 * ticket);
    std::this_thread::sleep_for(std::chrono::microseconds(8 * ticket * ticket));
    producer.store().server()->end(ticket);
    for (std::uint32_t i = 0; i < kNumBlocks; ++i) producer.cache.fill(BlockId{1 + i}, 5);
    const TransferCompletion loaded = consumer.end_of(ticket);
    for (std::uint32_t i = 0; i < kNumBlocks; ++i) {
      if (std::ranges::find(loaded.bad_blocks, BlockId{1 + i}) != loaded.bad_blocks.end()) continue;
      ++num_loaded;
      EXPECT_TRUE(consumer.cache.holds(BlockId{1 + i}, 100 * ticket + i, 0));
    }
  }
  EXPECT_GT(num_loaded, 0U) << "the test covers too few cases";
  EXPECT_EQ(consumer.store().fetcher()->stats().num_refused, 0U);
}

TEST(PeerTransfer, EndsALeaseOnTimeoutReleaseOrCancel) {
  PeerSide producer({.lease_s = 0.2}), consumer;
  producer.keep(1, "late");
  EXPECT_TRUE(producer.is_over(1, kMuchTooLong_s));
  EXPECT_EQ(producer.store().server()->stats().num_expired_leases, 1U);
  consumer.load(1, producer.source("late"));
  const TransferCompletion gone = consumer.end_of(1);
  EXPECT_EQ(gone.outcome, TransferOutcome::failed);
  EXPECT_EQ(gone.bad_blocks.size(), kNumBlocks);

  PeerSide patient;
  patient.keep(2, "unwanted");
  EXPECT_FALSE(patient.is_over(2, 0.1));
  consumer.store().fetcher()->release(patient.source("unwanted"));
  EXPECT_TRUE(patient.is_over(2, 5.0));
  patient.keep(3, "cancelled");
  consumer.store().fetcher()->expect(9, patient.source("cancelled"), 0, kNumBlocks);
  consumer.store().fetcher()->cancel(9);
  EXPECT_TRUE(patient.is_over(3, 5.0));
}

TEST(PeerTransfer, RenewsALease) {
  PeerSide producer({.lease_s = 1.5}), consumer;
  producer.keep(1, "request");
  for (int i = 0; i < 25; ++i) {
    consumer.store().fetcher()->renew(producer.source("request"));
    EXPECT_FALSE(producer.is_over(1, 0.1));
  }
  EXPECT_TRUE(producer.is_over(1, kMuchTooLong_s));
}

TEST(PeerTransfer, RefusesAnotherKeyModelOrServer) {
  PeerSide producer, stranger({.key = 2}), other_model({.fingerprint = 8});
  producer.keep(1, "request");
  for (PeerSide* consumer : {&stranger, &other_model}) {
    consumer->load(1, producer.source("request"));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(consumer->end_of(1).outcome, TransferOutcome::failed);
    EXPECT_LT(seconds_since(begin), kMuchTooLong_s);
    EXPECT_NE(consumer->store().fetcher()->stats().problem, "");
  }
  PeerSide consumer;
  PeerSource source = producer.source("request");
  source.engine_id = "another";
  consumer.load(1, source);
  EXPECT_EQ(consumer.end_of(1).outcome, TransferOutcome::failed);
  EXPECT_NE(consumer.store().fetcher()->stats().problem.find("another server has this address"), std::string::npos);
  // The blocks are still kept for the intended consumer.
  consumer.load(2, producer.source("request"));
  EXPECT_EQ(consumer.end_of(2).outcome, TransferOutcome::done);
  EXPECT_EQ(producer.store().server()->stats().num_sent, kNumBlocks);
}

TEST(PeerTransfer, RefusesBlocksOfOtherTokens) {
  PeerSide producer, consumer;
  producer.keep(1, "request", 100);
  consumer.load(1, producer.source("request"), 0, 500);
  const TransferCompletion loaded = consumer.end_of(1);
  EXPECT_EQ(loaded.outcome, TransferOutcome::failed);
  EXPECT_EQ(loaded.bad_blocks.size(), kNumBlocks);
  EXPECT_EQ(loaded.bytes, 0U);
  EXPECT_TRUE(producer.is_over(1, kMuchTooLong_s)) << "the lease ends since no other consumer connects";
}

TEST(PeerTransfer, ReportsFailedBlocksQuicklyWhenBytesAreFlippedCutOrStalled) {
  PeerSide producer, consumer;
  PeerRelay relay(producer.store().server()->port());
  std::uint64_t ticket = 0;
  constexpr std::uint64_t kSent = kNumBlocks * (kToyBlock + 41);
  for (const RelayFault fault : {RelayFault::flips, RelayFault::cuts, RelayFault::stalls}) {
    relay.fault = fault;
    for (std::uint64_t at = 0; at < kSent; at += fault == RelayFault::stalls ? kSent / 3 : kSent / 17) {
      relay.at = at;
      ++ticket;
      producer.keep(ticket, "request" + std::to_string(ticket), 1000 * ticket);
      PeerSource source = producer.source("request" + std::to_string(ticket));
      source.port = relay.port();
      const auto begin = std::chrono::steady_clock::now();
      consumer.load(ticket, source, 0, 1000 * ticket);
      const TransferCompletion loaded = consumer.end_of(ticket);
      EXPECT_LT(seconds_since(begin), kMuchTooLong_s);
      ASSERT_EQ(loaded.outcome, TransferOutcome::failed) << at;
      ASSERT_FALSE(loaded.bad_blocks.empty());
      // All blocks that are not reported as bad are right.
      for (std::uint32_t i = 0; i < kNumBlocks; ++i)
        if (std::ranges::find(loaded.bad_blocks, BlockId{1 + i}) == loaded.bad_blocks.end())
          EXPECT_TRUE(consumer.cache.holds(BlockId{1 + i}, 1000 * ticket + i, 0)) << i;
      producer.store().server()->end(ticket);
      EXPECT_TRUE(producer.is_over(ticket, 5.0));
    }
  }
}

TEST(PeerTransfer, FailsALoadQuicklyWhenTheProducerIsGone) {
  PeerSide consumer;
  PeerSource source;
  {
    PeerSide producer;
    producer.keep(1, "request");
    source = producer.source("request");
  }
  const auto begin = std::chrono::steady_clock::now();
  consumer.load(1, source);
  EXPECT_EQ(consumer.end_of(1).outcome, TransferOutcome::failed);
  EXPECT_LT(seconds_since(begin), kMuchTooLong_s);
}

// A step that writes to a kept block does not wait for the consumer. It ends the lease.
TEST(PeerTransfer, EndsALeaseOnAFence) {
  PeerSide producer, consumer;
  producer.keep(1, "request");
  EXPECT_EQ(producer.end_of(1).outcome, TransferOutcome::failed);
  producer.cache.fill(BlockId{3}, 12345);
  consumer.load(1, producer.source("request"));
  EXPECT_EQ(consumer.end_of(1).outcome, TransferOutcome::failed);
}

TEST(PeerTransfer, RunsManyTransfersConcurrently) {
  PeerSide producer, consumer;
  for (std::uint64_t i = 1; i <= 9; ++i) producer.keep(i, "request" + std::to_string(i), 0);
  for (std::uint64_t i = 1; i <= 9; ++i) consumer.load(i, producer.source("request" + std::to_string(i)), 0, 0);
  for (std::uint64_t i = 1; i <= 9; ++i) EXPECT_TRUE(consumer.is_over(i, 10.0));
  EXPECT_TRUE(consumer.holds_all());
  const auto begin = std::chrono::steady_clock::now();
  while (producer.store().server()->stats().num_open_leases > 0 && seconds_since(begin) < 10.0)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(producer.store().server()->stats().num_open_leases, 0U);
  EXPECT_EQ(consumer.store().fetcher()->stats().num_loaded, 9U * kNumBlocks);
}

TEST(PeerTransfer, ConnectsToNoOtherMachineWithoutAKey) {
  PeerFetcher fetcher({.secret = {}, .block_bytes = kToyBlock});
  fetcher.release({.host = "192.0.2.1", .port = 1, .engine_id = "e", .request_id = "r"});
  const auto begin = std::chrono::steady_clock::now();
  while (fetcher.num_open() > 0 && seconds_since(begin) < kMuchTooLong_s) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LT(seconds_since(begin), kMuchTooLong_s);
  EXPECT_NE(fetcher.stats().problem.find("kv_key is not set"), std::string::npos) << "no connection is opened";
}

// A client without the key that sends arbitrary bytes.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port, std::span<const std::byte> says = {}) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    is_connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (!says.empty()) (void)!send(socket_, says.data(), says.size(), MSG_NOSIGNAL);
  }
  ~Stranger() { close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  [[nodiscard]] bool is_connected() const { return is_connected_; }
  // Returns whether the server has closed the connection. It does not block.
  [[nodiscard]] bool is_closed() const {
    std::array<char, 256> bytes;
    for (;;) {
      const ssize_t count = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count > 0) continue;
      return count == 0 || errno == ECONNRESET;
    }
  }

 private:
  const int socket_;
  bool is_connected_ = false;
};

std::vector<std::byte> hello_of(std::uint8_t fingerprint) {
  std::vector<std::byte> out;
  PeerFrameCodec::add_hello(out, {.fingerprint = tier_fingerprint(fingerprint)});
  return out;
}

TEST(PeerServer, ServesConsumersWhileSilentClientsConnect) {
  PeerSide producer, consumer;
  const std::uint16_t port = producer.store().server()->port();
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (std::uint64_t ticket = 1; ticket <= 6; ++ticket) {
    // A third sends a whole hello, a third sends a part of one, and a third sends nothing.
    const std::vector<std::byte> hello = hello_of(7);
    for (int i = 0; i < 80; ++i) {
      const std::span<const std::byte> says = std::span(hello).first(i % 3 == 0 ? hello.size() : i % 3 == 1 ? 9 : 0);
      strangers.push_back(std::make_unique<Stranger>(port, says));
    }
    producer.keep(ticket, "request" + std::to_string(ticket), 100 * ticket);
    consumer.load(ticket, producer.source("request" + std::to_string(ticket)), 0, 100 * ticket);
    EXPECT_EQ(consumer.end_of(ticket).outcome, TransferOutcome::done) << ticket;
    EXPECT_TRUE(consumer.holds_all(0, 100 * ticket));
  }
  EXPECT_GT(producer.store().server()->stats().num_evicted_clients, 100U) << "the test covers too few cases";
}

TEST(PeerServer, ClosesConnectionsThatDoNotProveTheKeyInTime) {
  const auto server = PeerServer::open({.host = "127.0.0.1",
                                        .port = 0,
                                        .secret = std::vector(16, std::byte{1}),
                                        .fingerprint = tier_fingerprint(7),
                                        .engine_id = "producer",
                                        .timeout_s = 60.0,
                                        .handshake_s = 0.1})
                          .value();
  const Stranger silent(server->port()), greets(server->port(), hello_of(7));
  EXPECT_TRUE(comes_true([&] { return silent.is_closed(); }));
  EXPECT_TRUE(comes_true([&] { return greets.is_closed(); })) << "a hello does not prove the key";
}

TEST(PeerServer, KeepsAuthenticatedConnectionsWhenSilentClientsConnect) {
  Holder holder;
  holder.shelf->put(1);
  std::vector<std::unique_ptr<Stranger>> strangers;
  RemoteAddress address;
  address.host = "127.0.0.1";
  address.port = holder.server->port();
  PeerCache asker({.peers = {address},
                   .secret = std::vector(16, std::byte{1}),
                   .fingerprint = tier_fingerprint(7),
                   .engine_id = "asker",
                   .num_places = 10,
                   .group_bytes = {kCacheBlock, kCacheBlock, kCacheBlock / 2},
                   .lookup_timeout_s = 10.0,
                   .timeout_s = 10.0});
  const auto finds = [&] {
    std::promise<bool> found;
    asker.ask({tier_name(1)}, [] { return true; }, [&](const SharedStore::Answer& answer) { found.set_value(answer.has[0]); });
    return found.get_future().get();
  };
  EXPECT_TRUE(finds());
  for (int i = 0; i < 150; ++i) strangers.push_back(std::make_unique<Stranger>(holder.server->port()));
  EXPECT_TRUE(comes_true([&] { return holder.server->stats().num_evicted_clients >= 80; }));
  EXPECT_TRUE(finds());
  EXPECT_EQ(asker.last_problem(), "") << "the connection was not closed";
}

TEST(PeerServer, NamesTheInvalidPartOfItsAddress) {
  const auto field_of = [](const std::string& host, std::uint16_t port) {
    const auto opened = PeerServer::open({.host = host, .port = port, .secret = {}, .engine_id = "e"});
    return opened ? std::string() : opened.error().field;
  };
  EXPECT_EQ(field_of("no such host.invalid", 0), "kv_host");
  EXPECT_EQ(field_of("192.0.2.1", 0), "kv_host");
  PeerSide taken;
  EXPECT_EQ(field_of("127.0.0.1", taken.store().server()->port()), "kv_port");
}

}  // namespace
}  // namespace quire::test
