#pragma once
// A cache of other servers' blocks whose peers a test plays, message by message.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/peer_cache.h"
#include "runtime/remote/scripted_peer.h"
#include "runtime/remote/toy_shelf.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

inline PeerCacheOptions cache_options(const std::vector<std::uint16_t>& ports) {
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

inline AskedAnswer begin_ask(PeerCache& cache, const std::vector<OffloadKey>& names) {
  const auto over = std::make_shared<std::promise<SharedStore::Answer>>();
  AskedAnswer answer = over->get_future();
  cache.ask(names, [] { return true; }, [over](const SharedStore::Answer& one) { over->set_value(one); });
  return answer;
}

inline AskedAnswer begin_ask(PeerCache& cache, std::uint64_t number) {
  return begin_ask(cache, std::vector{tier_name(number)});
}

inline std::future<TierOutcome> begin_load(PeerCache& cache, std::uint64_t number, bool is_wanted = true) {
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
inline void answer_find(ScriptedPeer& peer, bool has = true) {
  const auto [kind, keys] = peer.next_keys();
  EXPECT_EQ(kind, PeerKind::find);
  peer.codec.add_found(peer.out(), peer.session, {.number = keys.number, .has = std::vector<bool>(keys.names.size(), has)});
  peer.flush();
}

inline void send_shelf_block(ScriptedPeer& peer, std::uint32_t index, std::uint64_t number) {
  peer.send_block(index, tier_name(number), tier_block(number, shelf_bytes_of(number)));
}

inline std::string problem_of_peer(const TestListener& listener, const std::string& why) {
  return "127.0.0.1:" + std::to_string(listener.port()) + ": " + why;
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

}  // namespace quire::test
