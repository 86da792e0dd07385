// Tests the loading of other servers' blocks against peers that the test plays, message by message.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/peer_cache.h"
#include "runtime/remote/peer_relay.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

PeerCacheOptions cache_options(const std::vector<std::uint16_t>& ports) {
  PeerCacheOptions options{.peers = {},
                           .secret = std::vector(16, std::byte{1}),
                           .fingerprint = tier_fingerprint(7),
                           .engine_id = "asker",
                           .num_places = 1000,
                           .group_bytes = {kCacheBlock, kCacheBlock, kCacheBlock / 2},
                           .lookup_timeout_s = kMuchTooLong_s,
                           .timeout_s = kMuchTooLong_s,
                           .initial_backoff_s = 0.5,
                           .max_backoff_s = 600.0};
  for (const std::uint16_t port : ports) options.peers.push_back(address_of_port(port));
  return options;
}

using AskedAnswer = std::future<SharedStore::Answer>;

AskedAnswer begin_ask(PeerCache& cache, const std::vector<OffloadKey>& names) {
  const auto over = std::make_shared<std::promise<SharedStore::Answer>>();
  AskedAnswer answer = over->get_future();
  cache.ask(names, [] { return true; }, [over](const SharedStore::Answer& one) { over->set_value(one); });
  return answer;
}

AskedAnswer begin_ask(PeerCache& cache, std::uint64_t number) {
  return begin_ask(cache, std::vector{tier_name(number)});
}

std::future<TierOutcome> begin_load(PeerCache& cache, std::uint64_t number, bool is_wanted = true) {
  const auto over = std::make_shared<std::promise<TierOutcome>>();
  std::future<TierOutcome> outcome = over->get_future();
  cache.submit({.verb = TierJob::Verb::load,
                .place = 0,
                .name = tier_name(number),
                .bytes = static_cast<std::uint32_t>(shelf_bytes_of(number)),
                .copy =
                    [number, is_wanted](std::span<std::byte> bytes) {
                      EXPECT_TRUE(std::ranges::equal(bytes, tier_block(number, shelf_bytes_of(number)))) << "a wrong byte";
                      return is_wanted;
                    },
                .over = [over](TierOutcome one) { over->set_value(one); }});
  return outcome;
}

// Waits with a bound, so that a missing answer fails the test.
template <class Value>
Value in_time(std::future<Value> value) {
  if (value.wait_for(std::chrono::duration<double>(2 * kMuchTooLong_s)) == std::future_status::ready) return value.get();
  ADD_FAILURE() << "no answer came";
  return {};
}

// Answers one question of the asker with `has` for all its keys.
void answer_find(ScriptedPeer& peer, bool has = true) {
  const auto [kind, keys] = peer.next_keys();
  EXPECT_EQ(kind, PeerKind::find);
  peer.codec.add_found(peer.out(), peer.session, {.number = keys.number, .has = std::vector<bool>(keys.names.size(), has)});
  peer.flush();
}

void send_shelf_block(ScriptedPeer& peer, std::uint32_t index, std::uint64_t number) {
  peer.send_block(index, tier_name(number), tier_block(number, shelf_bytes_of(number)));
}

std::string problem_of_peer(const TestListener& listener, const std::string& why) {
  return "127.0.0.1:" + std::to_string(listener.port()) + ": " + why;
}

TEST(PeerCacheScript, SplitsAQuestionIntoFramesAndNumbersThem) {
  TestListener listener;
  PeerCache cache(cache_options({listener.port()}));
  std::vector<OffloadKey> names;
  for (std::uint64_t number = 0; number < 300; ++number) names.push_back(tier_name(number));
  // A question that is not wanted any more is not sent.
  std::atomic<bool> is_over = false;
  cache.ask(names, [] { return false; }, [&](const SharedStore::Answer&) { is_over = true; });
  EXPECT_EQ(in_time(begin_load(cache, 5)), TierOutcome::absent) << "no peer was asked for it";
  AskedAnswer answer = begin_ask(cache, names);
  ScriptedPeer peer(listener);
  peer.welcome();
  std::size_t first = 0;
  for (const auto& [number, count] : std::vector<std::pair<std::uint32_t, std::size_t>>{{0, 128}, {1, 128}, {2, 44}}) {
    const auto [kind, keys] = peer.next_keys();
    EXPECT_EQ(kind, PeerKind::find);
    EXPECT_EQ(keys.number, number);
    EXPECT_EQ(keys.names,
              std::vector(names.begin() + static_cast<std::ptrdiff_t>(first), names.begin() + static_cast<std::ptrdiff_t>(first + count)));
    PeerFound found{.number = number, .has = std::vector<bool>(count)};
    for (std::size_t i = 0; i < count; ++i) found.has[i] = (first + i) % 7 == 0;
    peer.codec.add_found(peer.out(), peer.session, found);
    first += count;
  }
  peer.flush();
  const SharedStore::Answer over = in_time(std::move(answer));
  EXPECT_TRUE(over.is_whole);
  ASSERT_EQ(over.has.size(), 300U);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(over.has[i], i % 7 == 0) << i;
  EXPECT_FALSE(is_over);
  answer = begin_ask(cache, std::vector(128, tier_name(1)));
  const auto [kind, keys] = peer.next_keys();
  EXPECT_EQ(keys.number, 3U);
  EXPECT_EQ(keys.names.size(), 128U);
  peer.codec.add_found(peer.out(), peer.session, {.number = 3, .has = std::vector<bool>(128)});
  peer.flush();
  EXPECT_EQ(in_time(std::move(answer)).has, std::vector<bool>(128));
  EXPECT_FALSE(listener.has_connection()) << "questions share a connection";
  EXPECT_EQ(cache.stats().num_asked, 728U);
  EXPECT_EQ(cache.stats().num_found, 43U);
}

// A cache with one scripted peer that has been asked once.
struct CacheRig {
  explicit CacheRig(const std::function<void(PeerCacheOptions&)>& change = {}) {
    PeerCacheOptions options = cache_options({listener.port()});
    if (change) change(options);
    cache = std::make_unique<PeerCache>(std::move(options));
  }
  // Asks for these blocks; the peer answers that it holds them.
  void find(const std::vector<std::uint64_t>& numbers) {
    std::vector<OffloadKey> names;
    for (const std::uint64_t number : numbers) names.push_back(tier_name(number));
    AskedAnswer answer = begin_ask(*cache, names);
    if (!asks) {
      asks = std::make_unique<ScriptedPeer>(listener);
      asks->welcome();
    }
    for (std::size_t first = 0; first < names.size(); first += 128) answer_find(*asks);
    EXPECT_EQ(in_time(std::move(answer)).has, std::vector<bool>(numbers.size(), true));
  }
  void accept_loads() {
    loads = std::make_unique<ScriptedPeer>(listener);
    loads->welcome();
  }
  [[nodiscard]] std::string problem_of(const std::string& why) const { return problem_of_peer(listener, why); }

  TestListener listener;
  std::unique_ptr<PeerCache> cache;
  std::unique_ptr<ScriptedPeer> asks, loads;
};

TEST(PeerCacheScript, RequestsBlocksInOrderAndAtMost128AtATime) {
  CacheRig rig;
  std::vector<std::uint64_t> numbers(200);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  rig.find(numbers);
  // The first list may be short, because the jobs come one after the other.
  std::vector<std::future<TierOutcome>> outcomes;
  for (const std::uint64_t number : numbers) outcomes.push_back(begin_load(*rig.cache, number));
  rig.accept_loads();
  std::uint32_t next = 0;
  while (next < 200) {
    const auto [kind, keys] = rig.loads->next_keys();
    ASSERT_EQ(kind, PeerKind::take);
    EXPECT_EQ(keys.number, next);
    ASSERT_LE(keys.names.size(), 128U);
    for (std::size_t i = 0; i < keys.names.size(); ++i, ++next) {
      EXPECT_EQ(keys.names[i], tier_name(next));
      if (next % 10 == 4) {
        rig.loads->codec.add_gone(rig.loads->out(), rig.loads->session, next);
        rig.loads->flush();
      } else {
        send_shelf_block(*rig.loads, next, next);
      }
    }
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_EQ(in_time(std::move(outcomes[i])), i % 10 == 4 ? TierOutcome::absent : TierOutcome::done) << i;
    bytes += i % 10 == 4 ? 0 : shelf_bytes_of(i);
  }
  const SharedStoreStats stats = rig.cache->stats();
  EXPECT_EQ(stats.num_loaded, 180U);
  EXPECT_EQ(stats.num_absent, 20U);
  EXPECT_EQ(stats.bytes_loaded, bytes);
  EXPECT_EQ(stats.bytes_read, bytes);
  EXPECT_EQ(stats.num_answered_loads, 200U);
  EXPECT_EQ(rig.cache->last_problem(), "");
}

TEST(PeerCacheScript, KeepsThePeerWhenABlockIsNotWantedAnyMore) {
  CacheRig rig;
  rig.find({0, 3});
  std::future<TierOutcome> unwanted = begin_load(*rig.cache, 0, false);
  rig.accept_loads();
  ASSERT_EQ(rig.loads->next_keys().second.names.size(), 1U);
  send_shelf_block(*rig.loads, 0, 0);
  EXPECT_EQ(in_time(std::move(unwanted)), TierOutcome::cancelled);
  std::future<TierOutcome> wanted = begin_load(*rig.cache, 3);
  EXPECT_EQ(rig.loads->next_keys().second.number, 1U);
  send_shelf_block(*rig.loads, 1, 3);
  EXPECT_EQ(in_time(std::move(wanted)), TierOutcome::done);
  const SharedStoreStats stats = rig.cache->stats();
  EXPECT_EQ(stats.num_cancelled, 1U);
  EXPECT_EQ(stats.num_loaded, 1U);
  EXPECT_EQ(stats.bytes_loaded, kCacheBlock);
  EXPECT_EQ(stats.bytes_read, 2 * kCacheBlock);
}

TEST(PeerCacheScript, PausesAPeerWhoseAnswerDoesNotMatchTheQuestion) {
  const std::vector<std::function<void(ScriptedPeer&, const PeerKeyList&)>> cases = {
      [](ScriptedPeer& peer, const PeerKeyList& keys) {
        peer.codec.add_found(peer.out(), peer.session, {.number = keys.number + 1, .has = {true, true}});
      },
      [](ScriptedPeer& peer, const PeerKeyList& keys) {
        peer.codec.add_found(peer.out(), peer.session, {.number = keys.number, .has = {true, true, true}});
      },
      [](ScriptedPeer& peer, const PeerKeyList& keys) {
        peer.codec.add_found(peer.out(), peer.session, {.number = keys.number, .has = {true}});
      },
      [](ScriptedPeer& peer, const PeerKeyList& keys) { peer.codec.add_gone(peer.out(), peer.session, keys.number); },
      [](ScriptedPeer& peer, const PeerKeyList& keys) {
        PeerFrameCodec other(std::vector(16, std::byte{2}));
        other.add_found(peer.out(), peer.session, {.number = keys.number, .has = {true, true}});
      }};
  for (const auto& say : cases) {
    CacheRig rig;
    AskedAnswer answer = begin_ask(*rig.cache, std::vector{tier_name(1), tier_name(2)});
    ScriptedPeer peer(rig.listener);
    peer.welcome();
    say(peer, peer.next_keys().second);
    peer.flush();
    const SharedStore::Answer over = in_time(std::move(answer));
    EXPECT_EQ(over.has, (std::vector{false, false}));
    EXPECT_FALSE(over.is_whole);
    EXPECT_EQ(rig.cache->last_problem(), rig.problem_of("its answer does not match the question that was sent"));
    EXPECT_TRUE(peer.is_closed());
  }
}

TEST(PeerCacheScript, PausesAPeerThatAnswersWithoutAQuestion) {
  CacheRig rig;
  rig.find({1});
  rig.asks->codec.add_found(rig.asks->out(), rig.asks->session, {.number = 0, .has = {true}});
  rig.asks->flush();
  EXPECT_TRUE(
      comes_true([&] { return rig.cache->last_problem() == rig.problem_of("its answer does not match the question that was sent"); }));
  EXPECT_TRUE(rig.asks->is_closed());
}

TEST(PeerCacheScript, PausesAPeerThatSendsMoreThanWasRequested) {
  CacheRig rig;
  rig.find({0});
  std::future<TierOutcome> outcome = begin_load(*rig.cache, 0);
  rig.accept_loads();
  rig.loads->next_keys();
  send_shelf_block(*rig.loads, 0, 0);
  send_shelf_block(*rig.loads, 1, 0);
  EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::done);
  EXPECT_TRUE(comes_true([&] { return rig.cache->last_problem() == rig.problem_of("it sent more than was requested"); }));
  EXPECT_TRUE(rig.loads->is_closed());
  EXPECT_TRUE(rig.asks->is_closed()) << "a paused peer has no connection";
}

TEST(PeerCacheScript, RefusesOneWrongBlockAndFailsTheRest) {
  const std::vector<std::function<void(ScriptedPeer&)>> cases = {
      [](ScriptedPeer& peer) { send_shelf_block(peer, 1, 0); }, [](ScriptedPeer& peer) { send_shelf_block(peer, 0, 3); },
      [](ScriptedPeer& peer) { peer.codec.add_gone(peer.out(), peer.session, 1), peer.flush(); },
      [](ScriptedPeer& peer) { peer.codec.add_found(peer.out(), peer.session, {.number = 0, .has = {true}}), peer.flush(); },
      [](ScriptedPeer& peer) { peer.send_block(0, tier_name(0), tier_block(0, kCacheBlock - 8)); }};
  for (const auto& say : cases) {
    CacheRig rig;
    rig.find({0, 3, 6});
    std::vector<std::future<TierOutcome>> outcomes;
    for (const std::uint64_t number : {0U, 3U, 6U}) outcomes.push_back(begin_load(*rig.cache, number));
    rig.accept_loads();
    rig.loads->next_keys();
    say(*rig.loads);
    EXPECT_EQ(in_time(std::move(outcomes[0])), TierOutcome::refused);
    for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(in_time(std::move(outcomes[i])), TierOutcome::failed);
    EXPECT_EQ(rig.cache->last_problem(), rig.problem_of("a block from it does not match the requested offload key"));
    EXPECT_TRUE(rig.loads->is_closed());
    const SharedStoreStats stats = rig.cache->stats();
    EXPECT_EQ(stats.num_refused, 1U);
    EXPECT_EQ(stats.num_failed_loads, 2U);
    EXPECT_EQ(stats.num_answered_loads, 0U);
    EXPECT_EQ(stats.bytes_read, 0U);
    // While the peer is paused, its blocks are not loaded. There is no time limit here: only an answer ends that.
    EXPECT_EQ(in_time(begin_load(*rig.cache, 3)), TierOutcome::failed);
    EXPECT_FALSE(rig.listener.has_connection());
  }
}

TEST(PeerCacheScript, UsesAPausedPeerAgainAfterItHasAnswered) {
  CacheRig rig([](PeerCacheOptions& options) { options.initial_backoff_s = options.max_backoff_s = 0.02; });
  rig.find({0});
  AskedAnswer answer = begin_ask(*rig.cache, 0);
  rig.asks->next_keys();
  rig.asks.reset();
  EXPECT_FALSE(in_time(std::move(answer)).is_whole);
  EXPECT_EQ(rig.cache->last_problem(), rig.problem_of("the connection was closed"));
  EXPECT_EQ(in_time(begin_load(*rig.cache, 0)), TierOutcome::failed);
  // A question after the pause is a trial. It does not wait for the answer.
  EXPECT_TRUE(comes_true([&] {
    const SharedStore::Answer over = in_time(begin_ask(*rig.cache, 0));
    EXPECT_TRUE(over.is_whole) << "no answer was awaited";
    EXPECT_FALSE(over.has[0]);
    return rig.listener.has_connection();
  }));
  rig.asks = std::make_unique<ScriptedPeer>(rig.listener);
  rig.asks->welcome();
  answer_find(*rig.asks);
  // The trial's answer is used by later questions only.
  EXPECT_TRUE(comes_true([&] {
    AskedAnswer again = begin_ask(*rig.cache, 0);
    // In use again: the question waits for its answer.
    std::optional<PeerFrame> frame;
    comes_true([&] {
      rig.asks->link.advance();
      frame = rig.asks->link.next();
      return frame || again.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    if (!frame) return false;
    const auto keys = rig.asks->codec.read_keys(*frame, rig.asks->session);
    rig.asks->codec.add_found(rig.asks->out(), rig.asks->session, {.number = keys.value().number, .has = {true}});
    rig.asks->flush();
    EXPECT_TRUE(in_time(std::move(again)).has[0]);
    return true;
  }));
  std::future<TierOutcome> outcome = begin_load(*rig.cache, 0);
  rig.accept_loads();
  EXPECT_EQ(rig.loads->next_keys().second.number, 0U) << "numbers begin again with each connection";
  send_shelf_block(*rig.loads, 0, 0);
  EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::done);
}

TEST(PeerCacheScript, OpensAnIdleConnectionAgainWithoutReportingAProblem) {
  CacheRig rig;
  for (int round = 0; round < 3; ++round) {
    rig.find({1, 2});
    std::future<TierOutcome> outcome = begin_load(*rig.cache, 1);
    rig.accept_loads();
    const auto [kind, keys] = rig.loads->next_keys();
    EXPECT_EQ(keys.names, std::vector{tier_name(1)});
    send_shelf_block(*rig.loads, keys.number, 1);
    EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::done);
    for (ScriptedPeer* const peer : {rig.asks.get(), rig.loads.get()}) {
      shutdown(peer->link.descriptor(), SHUT_WR);
      EXPECT_TRUE(peer->is_closed()) << "the cache closes its side";
    }
    rig.asks.reset();
    rig.loads.reset();
  }
  EXPECT_EQ(rig.cache->last_problem(), "");
}

TEST(PeerCacheScript, ReportsAPeerThatStalls) {
  CacheRig rig([](PeerCacheOptions& options) { options.timeout_s = 0.1; });
  AskedAnswer answer = begin_ask(*rig.cache, 1);
  ScriptedPeer silent(rig.listener);
  EXPECT_FALSE(in_time(std::move(answer)).is_whole);
  EXPECT_EQ(rig.cache->last_problem(), rig.problem_of("it did not answer within the time limit"));
  EXPECT_TRUE(!silent.next() || silent.is_closed());
}

TEST(PeerCacheScript, ReportsAPeerThatStallsDuringALoad) {
  CacheRig rig([](PeerCacheOptions& options) { options.timeout_s = 0.3; });
  std::future<SharedStore::Answer> answer = begin_ask(*rig.cache, 0);
  rig.asks = std::make_unique<ScriptedPeer>(rig.listener);
  rig.asks->welcome();
  answer_find(*rig.asks);
  if (!in_time(std::move(answer)).has[0]) return;  // a very busy machine
  EXPECT_EQ(in_time(begin_load(*rig.cache, 0)), TierOutcome::failed);
  EXPECT_EQ(rig.cache->last_problem(), rig.problem_of("it did not answer within the time limit"));
}

TEST(PeerCacheScript, EndsAQuestionAfterItsTimeWithTheAnswersSoFar) {
  TestListener silent;
  Holder holder;
  holder.shelf->put(1);
  PeerCacheOptions options = cache_options({silent.port(), holder.server->port()});
  options.lookup_timeout_s = 0.3;
  PeerCache cache(std::move(options));
  bool was_found = false;
  for (int i = 0; i < 20 && !was_found; ++i) {
    const SharedStore::Answer over = in_time(begin_ask(cache, 1));
    was_found = over.has[0] && over.is_whole;
  }
  EXPECT_TRUE(was_found) << "one answer is enough";
  PeerCacheOptions alone = cache_options({silent.port()});
  alone.lookup_timeout_s = 0.05;
  PeerCache asker(std::move(alone));
  const SharedStore::Answer over = in_time(begin_ask(asker, 1));
  EXPECT_FALSE(over.is_whole);
  EXPECT_FALSE(over.has[0]);
  EXPECT_EQ(asker.last_problem(), "") << "the peer may still answer";
}

TEST(PeerCacheScript, LimitsTheFramesThatWaitForAPeer) {
  TestListener silent;
  PeerCacheOptions options = cache_options({silent.port()});
  options.lookup_timeout_s = 0.05;
  const auto is_asked = [&](std::size_t num_names) {
    PeerCache cache(options);
    const SharedStore::Answer over = in_time(begin_ask(cache, std::vector(num_names, tier_name(1))));
    EXPECT_EQ(over.has.size(), num_names);
    return !over.is_whole;
  };
  EXPECT_TRUE(is_asked(1));
  EXPECT_TRUE(is_asked(1024 * 128));
  EXPECT_FALSE(is_asked(1024 * 128 + 1)) << "1025 frames are too many, so the peer is not asked";
}

TEST(PeerCacheScript, RemembersTheHoldersOfRecentlyFoundBlocks) {
  Holder holder;
  for (std::uint64_t number = 0; number < 60; ++number) holder.shelf->put(number);
  const auto fresh = [&] {
    PeerCacheOptions options = cache_options({holder.server->port()});
    options.num_places = 4;
    return std::make_unique<PeerCache>(std::move(options));
  };
  const auto finds = [](PeerCache& cache, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t number = first; number < end; ++number) EXPECT_TRUE(in_time(begin_ask(cache, number)).has[0]);
  };
  const auto knows = [](PeerCache& cache, std::uint64_t number) { return in_time(begin_load(cache, number)) == TierOutcome::done; };
  {
    const auto cache = fresh();
    finds(*cache, 0, 5);
    for (std::uint64_t number = 0; number < 5; ++number) EXPECT_TRUE(knows(*cache, number)) << number;
    finds(*cache, 5, 8);
    for (std::uint64_t number = 0; number < 8; ++number) EXPECT_TRUE(knows(*cache, number)) << number;
    finds(*cache, 7, 8);
    EXPECT_TRUE(knows(*cache, 0)) << "a known block needs no room";
    finds(*cache, 8, 9);
    for (std::uint64_t number = 0; number < 9; ++number) EXPECT_EQ(knows(*cache, number), number >= 4) << number;
  }
}

TEST(PeerCacheScript, PrefersTheFirstOfTwoPeersThatHoldAsManyBlocks) {
  Holder first, second;
  for (std::uint64_t number = 0; number < 6; ++number) first.shelf->put(number), second.shelf->put(number);
  PeerCache cache(cache_options({first.server->port(), second.server->port()}));
  std::vector<OffloadKey> names;
  for (std::uint64_t number = 0; number < 6; ++number) names.push_back(tier_name(number));
  const SharedStore::Answer over = in_time(begin_ask(cache, names));
  EXPECT_EQ(over.has, std::vector<bool>(6, true));
  for (std::uint64_t number = 0; number < 6; ++number) EXPECT_EQ(in_time(begin_load(cache, number)), TierOutcome::done);
  EXPECT_EQ(first.server->stats().num_sent, 6U);
  EXPECT_EQ(second.server->stats().num_sent, 0U);
  EXPECT_EQ(cache.stats().num_found, 6U) << "a block that two peers hold counts once";
}

TEST(PeerCacheScript, NeverPausesLongerThanItsMaximum) {
  Holder holder;
  PeerRelay relay(holder.server->port());
  relay.fault = RelayFault::cuts;
  PeerCacheOptions options = cache_options({relay.port()});
  options.initial_backoff_s = 0.01;
  options.max_backoff_s = 0.01;
  PeerCache cache(std::move(options));
  // With doubled pauses the last of these trials would come after two minutes.
  EXPECT_TRUE(comes_true([&] {
    in_time(begin_ask(cache, 1));
    return relay.num_connections >= 14;
  }));
}

TEST(PeerCacheScript, CountsWhatItsServerGivesAsStored) {
  auto shelf = std::make_shared<ToyShelf>();
  shelf->put(0);
  auto server = PeerServer::open({.host = "127.0.0.1",
                                  .port = 0,
                                  .secret = std::vector(16, std::byte{1}),
                                  .fingerprint = tier_fingerprint(7),
                                  .engine_id = "giver",
                                  .block_source = shelf})
                    .value();
  PeerServer* const given = server.get();
  PeerCache giver(cache_options({}), std::move(server));
  EXPECT_EQ(giver.server(), given);
  EXPECT_FALSE(giver.service().loads) << "it has no peers";
  EXPECT_FALSE(giver.service().stores);
  EXPECT_EQ(giver.num_places(), 1000U);
  EXPECT_EQ(giver.block_bytes(), kCacheBlock);
  PeerCache taker(cache_options({given->port()}));
  EXPECT_TRUE(taker.service().loads);
  EXPECT_EQ(taker.server(), nullptr);
  EXPECT_TRUE(in_time(begin_ask(taker, 0)).has[0]);
  EXPECT_EQ(in_time(begin_load(taker, 0)), TierOutcome::done);
  EXPECT_EQ(giver.stats().num_stored, 1U);
  EXPECT_EQ(giver.stats().bytes_stored, kCacheBlock);
  EXPECT_EQ(taker.stats().num_stored, 0U);
  // It stores nothing itself.
  std::promise<TierOutcome> over;
  taker.submit(
      {.verb = TierJob::Verb::store, .place = 0, .name = tier_name(0), .bytes = kCacheBlock, .copy = {}, .over = [&](TierOutcome outcome) {
         over.set_value(outcome);
       }});
  EXPECT_EQ(in_time(over.get_future()), TierOutcome::cancelled);
}

TEST(PeerCacheScript, CancelsOpenLoadsWhenItIsDestroyed) {
  CacheRig rig;
  rig.find({0, 3});
  std::vector<std::future<TierOutcome>> outcomes;
  outcomes.push_back(begin_load(*rig.cache, 0));
  outcomes.push_back(begin_load(*rig.cache, 3));
  rig.accept_loads();
  rig.cache.reset();
  for (auto& outcome : outcomes) EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::cancelled);
}

TEST(PeerCacheScript, FailsATrialIfNoPeerAnswers) {
  std::uint16_t dead = 0;
  {
    const TestListener gone;
    dead = gone.port();
  }
  PeerCache cache(cache_options({dead}));
  for (std::uint64_t round = 1; round <= 2; ++round) {
    cache.probe_loads();
    EXPECT_TRUE(comes_true([&] { return !cache.is_probing(); }));
    EXPECT_EQ(cache.stats().num_answered_loads, 0U);
    EXPECT_EQ(cache.stats().num_failed_loads, round);
    EXPECT_EQ(cache.stats().num_asked, 0U) << "a trial is no question of a request";
  }
}

}  // namespace
}  // namespace quire::test
