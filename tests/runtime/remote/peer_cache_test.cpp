// Tests loading blocks of other servers by their keys. A load returns the block that was stored under the key, or a miss. A peer that is
// dead, stalls, lies, or has another model or key costs at most one timeout, once.
#include "runtime/remote/peer_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "runtime/remote/peer_relay.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// A busy machine may take long. Short timeouts are for tests of peers that do not answer.
struct Patience {
  double lookup_s = kMuchTooLong_s, load_s = kMuchTooLong_s;
};

class Asker {
 public:
  explicit Asker(const std::vector<std::uint16_t>& ports, double initial_backoff_s = 60.0, const Patience& patience = {})
      : cache(PeerCacheOptions{.peers = addresses(ports),
                               .secret = std::vector(16, std::byte{1}),
                               .fingerprint = tier_fingerprint(7),
                               .engine_id = "asker",
                               .num_places = 1000,
                               .group_bytes = {kCacheBlock, kCacheBlock, kCacheBlock / 2},
                               .lookup_timeout_s = patience.lookup_s,
                               .timeout_s = patience.load_s,
                               .initial_backoff_s = initial_backoff_s}) {}

  static std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint64_t> all(count);
    for (std::uint64_t i = 0; i < count; ++i) all[i] = first + i;
    return all;
  }
  SharedStore::Answer ask(const std::vector<std::uint64_t>& numbers) {
    std::vector<OffloadKey> names;
    for (const std::uint64_t number : numbers) names.push_back(tier_name(number));
    std::promise<SharedStore::Answer> over;
    cache.ask(names, [] { return true; }, [&](const SharedStore::Answer& answer) { over.set_value(answer); });
    return over.get_future().get();
  }
  std::uint64_t num_found(const std::vector<std::uint64_t>& numbers) {
    return static_cast<std::uint64_t>(std::ranges::count(ask(numbers).has, true));
  }
  // Loads all blocks at the same time and returns the outcomes. Loaded bytes must match the number.
  std::vector<TierOutcome> load(const std::vector<std::uint64_t>& numbers) {
    std::vector<TierOutcome> outcomes(numbers.size());
    std::latch left(static_cast<std::ptrdiff_t>(numbers.size()));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      cache.submit({.verb = TierJob::Verb::load,
                    .place = 0,
                    .name = tier_name(numbers[i]),
                    .bytes = static_cast<std::uint32_t>(shelf_bytes_of(numbers[i])),
                    .copy =
                        [number = numbers[i]](std::span<std::byte> bytes) {
                          EXPECT_TRUE(std::ranges::equal(bytes, tier_block(number, shelf_bytes_of(number)))) << "a wrong byte";
                          return true;
                        },
                    .over =
                        [&, i](TierOutcome outcome) {
                          outcomes[i] = outcome;
                          left.count_down();
                        }});
    left.wait();
    return outcomes;
  }
  std::uint64_t num_loaded(const std::vector<std::uint64_t>& numbers) {
    return static_cast<std::uint64_t>(std::ranges::count(load(numbers), TierOutcome::done));
  }

  PeerCache cache;

 private:
  static std::vector<RemoteAddress> addresses(const std::vector<std::uint16_t>& ports) {
    std::vector<RemoteAddress> all;
    for (const std::uint16_t port : ports) {
      RemoteAddress& address = all.emplace_back();
      address.host = "127.0.0.1";
      address.port = port;
    }
    return all;
  }
};

double seconds_of(const std::function<void()>& what) {
  const auto begin = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(PeerCache, FindsAndLoadsBlocksOfAPeer) {
  Holder holder;
  Asker asker({holder.server->port()});
  const auto wanted = Asker::numbers(0, 700);  // more keys than one frame has, of all groups
  for (const std::uint64_t number : wanted)
    if (number != 300) holder.shelf->put(number);
  const SharedStore::Answer answer = asker.ask(wanted);
  EXPECT_TRUE(answer.is_whole);
  for (const std::uint64_t number : wanted) EXPECT_EQ(answer.has[number], number != 300) << number;
  EXPECT_EQ(asker.num_loaded(Asker::numbers(0, 300)), 300U);
  // A block that was removed is reported as absent. The blocks after it are loaded.
  holder.shelf->remove(305);
  const auto outcomes = asker.load(Asker::numbers(301, 300));
  for (std::size_t i = 0; i < outcomes.size(); ++i) EXPECT_EQ(outcomes[i], i == 4 ? TierOutcome::absent : TierOutcome::done) << i;
  const SharedStoreStats stats = asker.cache.stats();
  EXPECT_EQ(stats.num_loaded, 599U);
  EXPECT_EQ(stats.num_absent, 1U);
  EXPECT_EQ(stats.num_asked, 700U);
  EXPECT_EQ(stats.num_found, 699U);
  EXPECT_EQ(stats.num_failed_loads + stats.num_refused, 0U);
  EXPECT_EQ(holder.server->stats().num_sent, 599U);
  EXPECT_EQ(asker.cache.last_problem(), "");
}

TEST(PeerCache, LoadsEachBlockFromThePeerThatHasMost) {
  Holder few, many;
  Asker asker({few.server->port(), many.server->port()});
  for (std::uint64_t number = 0; number < 10; ++number) few.shelf->put(number);
  for (std::uint64_t number = 5; number < 40; ++number) many.shelf->put(number);
  EXPECT_EQ(asker.num_found(Asker::numbers(0, 50)), 40U);
  EXPECT_EQ(asker.num_loaded(Asker::numbers(0, 40)), 40U);
  EXPECT_EQ(few.server->stats().num_sent, 5U);
  EXPECT_EQ(many.server->stats().num_sent, 35U);
}

TEST(PeerCache, ReportsUnqueriedAndUntrustedBlocksAsAbsent) {
  Holder holder;
  Asker asker({holder.server->port()});
  holder.shelf->put(1);
  EXPECT_EQ(asker.load({1})[0], TierOutcome::absent) << "no peer was asked for it";
  EXPECT_EQ(asker.num_found({1}), 1U);
  holder.shelf->put(4);
  EXPECT_EQ(asker.num_found({4}), 1U);
  asker.cache.mark_untrusted(tier_name(1));
  EXPECT_EQ(asker.load({1})[0], TierOutcome::absent);
  EXPECT_EQ(asker.num_found({1}), 0U);
  EXPECT_EQ(asker.load({4})[0], TierOutcome::done) << "other blocks are still trusted";
  EXPECT_EQ(asker.num_found({4}), 1U);
  EXPECT_FALSE(asker.cache.service().stores);
}

TEST(PeerCache, RefusesBytesThatDoNotMatchTheKey) {
  Holder holder;
  Asker asker({holder.server->port()});
  PeerRelay relay(holder.server->port());
  Asker through({relay.port()});
  // Bytes of another layout are refused. The holder's tier does its separate checks.
  holder.shelf->put(2);
  EXPECT_EQ(asker.num_found({2}), 1U);
  std::promise<TierOutcome> over;
  asker.cache.submit({.verb = TierJob::Verb::load,
                      .place = 0,
                      .name = tier_name(2),
                      .bytes = kCacheBlock,
                      .copy = [](std::span<std::byte>) { return true; },
                      .over = [&](TierOutcome outcome) { over.set_value(outcome); }});
  EXPECT_EQ(over.get_future().get(), TierOutcome::refused);
  EXPECT_NE(asker.cache.last_problem().find("does not match the requested offload key"), std::string::npos);
  EXPECT_EQ(asker.num_found({2}), 0U) << "the peer is not asked again soon";
}

TEST(PeerCache, SkipsPeersThatFailedOnce) {
  Holder stranger(2), other_model(1, 8), good;
  std::uint16_t dead = 0;
  {
    const Holder gone;
    dead = gone.server->port();
  }
  good.shelf->put(1);
  for (const std::uint16_t bad : {stranger.server->port(), other_model.server->port(), dead}) {
    Asker asker({bad}), both({bad, good.server->port()});
    EXPECT_LT(seconds_of([&] { EXPECT_FALSE(asker.ask({1}).is_whole); }), kMuchTooLong_s);
    EXPECT_NE(asker.cache.last_problem(), "");
    EXPECT_TRUE(asker.ask({1}).is_whole) << "no peer is left to ask";
    EXPECT_EQ(both.num_found({1}), 1U);
    EXPECT_EQ(both.num_loaded({1}), 1U);
  }
}

TEST(PeerCache, ReportsAPeerThatSharesNoBlocks) {
  const auto server = PeerServer::open({.host = "127.0.0.1",
                                        .port = 0,
                                        .secret = std::vector(16, std::byte{1}),
                                        .fingerprint = tier_fingerprint(7),
                                        .engine_id = "producer"})
                          .value();
  Asker asker({server->port()});
  EXPECT_EQ(asker.num_found({1}), 0U);
  EXPECT_NE(asker.cache.last_problem().find("shares no blocks"), std::string::npos);
}

TEST(PeerCache, SkipsItselfWithoutReportingAProblem) {
  Holder self(1, 7, 0, "asker");
  self.shelf->put(1);
  Asker asker({self.server->port()});
  const SharedStore::Answer answer = asker.ask({1});
  EXPECT_TRUE(answer.is_whole);
  EXPECT_FALSE(answer.has[0]);
  EXPECT_EQ(asker.num_found({1}), 0U);
  EXPECT_EQ(asker.cache.last_problem(), "");
}

TEST(PeerCache, TreatsFlippedCutOrStalledBytesAsQuickMisses) {
  constexpr std::uint64_t kBlocks = 12, kSent = kBlocks * (kCacheBlock + 41);
  Holder holder;
  for (std::uint64_t number = 0; number < kBlocks; ++number) holder.shelf->put(3 * number);
  std::vector<std::uint64_t> wanted;
  for (std::uint64_t number = 0; number < kBlocks; ++number) wanted.push_back(3 * number);
  for (const RelayFault fault : {RelayFault::flips, RelayFault::cuts, RelayFault::stalls}) {
    for (std::uint64_t at = 0; at < kSent; at += fault == RelayFault::stalls ? kSent / 3 : kSent / 17) {
      PeerRelay relay(holder.server->port());
      Asker asker({relay.port()}, 60.0, {.lookup_s = at < 200 ? 0.3 : 20.0, .load_s = 4.0});
      relay.fault = at < 200 ? fault : RelayFault::none;
      relay.at = at;
      const double asking_s = seconds_of([&] { EXPECT_EQ(asker.num_found(wanted), at < 200 ? 0U : kBlocks) << at; });
      EXPECT_LT(asking_s, kMuchTooLong_s);
      relay.fault = fault;
      std::vector<TierOutcome> outcomes;
      EXPECT_LT(seconds_of([&] { outcomes = asker.load(wanted); }), kMuchTooLong_s) << at;
      EXPECT_NE(outcomes.back(), TierOutcome::done) << at;
      EXPECT_LE(std::ranges::count(outcomes, TierOutcome::refused), 1);
      if (at > 200) EXPECT_EQ(asker.cache.stats().num_loaded, (at - 130) / (kCacheBlock + 41)) << "all blocks before the fault are loaded";
    }
  }
}

TEST(PeerCache, TriesAPeerAgainAfterItsPause) {
  auto holder = std::make_unique<Holder>();
  const std::uint16_t port = holder->server->port();
  Asker asker({port}, 0.05);
  holder->shelf->put(1);
  EXPECT_EQ(asker.num_found({1}), 1U);
  holder.reset();
  EXPECT_EQ(asker.num_found({1}), 0U);
  holder = std::make_unique<Holder>(1, 7, port);
  holder->shelf->put(1);
  const auto begin = std::chrono::steady_clock::now();
  while (asker.num_found({1}) == 0U && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(asker.num_loaded({1}), 1U);
}

// Asks every 5 ms for two seconds. Returns how many questions reached the peer.
std::uint32_t num_trials(Asker& asker, PeerRelay& relay, const std::function<void()>& ask) {
  const std::uint32_t before = relay.num_connections;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
    ask();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_NE(asker.cache.last_problem(), "");
  return relay.num_connections - before;
}

// Pauses double from 20 ms: seven take more than two seconds, but seven of 20 ms take a seventh of a second.
TEST(PeerCache, LengthensThePausesOfAPeerThatDoesNotAnswer) {
  Holder holder;
  PeerRelay relay(holder.server->port());
  relay.fault = RelayFault::cuts;
  Asker asker({relay.port()}, 0.02);
  const std::uint32_t trials = num_trials(asker, relay, [&] { asker.ask({1}); });
  EXPECT_GE(trials, 2U) << "the peer is tried again";
  EXPECT_LE(trials, 8U);
}

TEST(PeerCache, LengthensThePausesOfAPeerThatAnswersButSendsWrongBlocks) {
  Holder holder;
  holder.shelf->put(3);
  PeerRelay relay(holder.server->port());
  relay.fault = RelayFault::flips;
  relay.at = 2000;  // within the block, since answers to queries are shorter
  Asker asker({relay.port()}, 0.02);
  std::uint64_t num_refused = 0;
  num_trials(asker, relay, [&] {
    if (asker.num_found({3}) == 1) num_refused += asker.load({3})[0] == TierOutcome::refused ? 1 : 0;
  });
  EXPECT_GE(num_refused, 2U) << "the peer is used again when it answers";
  EXPECT_LE(num_refused, 8U);
}

TEST(PeerCache, CountsATrial) {
  auto holder = std::make_unique<Holder>();
  Asker asker({holder->server->port()}, 0.01);
  const auto trial = [&] {
    asker.cache.probe_loads();
    while (asker.cache.is_probing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return asker.cache.stats();
  };
  EXPECT_EQ(trial().num_answered_loads, 1U);
  holder->shelf->put(1);
  asker.ask({1});
  asker.load({1});
  const SharedStoreStats loaded = trial();
  EXPECT_GT(loaded.num_answered_loads, 3U) << "two trials and two queries";
  EXPECT_GT(loaded.bytes_read, kCacheBlock);
  EXPECT_EQ(loaded.num_loaded, 1U);
  holder.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GT(trial().num_failed_loads, 0U);
}

TEST(PeerCache, EndsWhileAPeerStalls) {
  Holder holder;
  for (std::uint64_t number = 0; number < 50; ++number) holder.shelf->put(number);
  PeerRelay relay(holder.server->port());
  std::atomic<std::uint32_t> num_over = 0;
  {
    Asker asker({relay.port()});
    EXPECT_EQ(asker.num_found(Asker::numbers(0, 50)), 50U);
    relay.fault = RelayFault::stalls;
    for (std::uint64_t number = 0; number < 50; ++number)
      asker.cache.submit({.verb = TierJob::Verb::load,
                          .place = 0,
                          .name = tier_name(number),
                          .bytes = static_cast<std::uint32_t>(shelf_bytes_of(number)),
                          .copy = [](std::span<std::byte>) { return true; },
                          .over = [&](TierOutcome) { ++num_over; }});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(num_over, 50U);
}

TEST(PeerCache, ManyThreadsAskWhilePeersComeAndGo) {
  std::vector<std::unique_ptr<Holder>> holders;
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < 3; ++i) {
    holders.push_back(std::make_unique<Holder>());
    ports.push_back(holders.back()->server->port());
    for (std::uint64_t number = 0; number < 60; ++number)
      if ((number + static_cast<std::uint64_t>(i)) % 2 == 0) holders.back()->shelf->put(number);
  }
  Asker asker(ports, 0.01);
  std::atomic<std::uint64_t> num_loaded = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    threads.emplace_back([&, seed] {
      Random random(seed);
      for (int round = 0; round < 60; ++round) {
        const auto wanted = Asker::numbers(random.below(40), 1 + random.below(20));
        asker.ask(wanted);
        num_loaded += asker.num_loaded(wanted);
      }
    });
  for (int round = 0; round < 6; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const auto which = static_cast<std::size_t>(round % 3);
    holders[which].reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    holders[which] = std::make_unique<Holder>(1, 7, ports[which]);
    for (std::uint64_t number = 0; number < 60; ++number) holders[which]->shelf->put(number);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_loaded, 300U) << "the test covers too few cases";
  EXPECT_EQ(asker.cache.stats().num_refused, 0U);
}

}  // namespace
}  // namespace quire::test
