// Tests the questions for other servers' blocks against peers that the test plays, message by message.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/remote/peer_cache_rig.h"

namespace quire::test {
namespace {

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

TEST(PeerCacheScript, NeverAsksItselfAgain) {
  CacheRig rig;
  AskedAnswer answer = begin_ask(*rig.cache, 1);
  ScriptedPeer self(rig.listener);
  self.welcome("asker");
  EXPECT_TRUE(self.is_closed()) << "no question is sent";
  for (int round = 0; round < 2; ++round) {
    const SharedStore::Answer over = in_time(round == 0 ? std::move(answer) : begin_ask(*rig.cache, 1));
    EXPECT_TRUE(over.is_whole);
    EXPECT_FALSE(over.has[0]);
  }
  EXPECT_FALSE(rig.listener.has_connection());
  EXPECT_EQ(rig.cache->last_problem(), "");
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

}  // namespace
}  // namespace quire::test
