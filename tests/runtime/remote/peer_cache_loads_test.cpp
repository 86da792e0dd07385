// Tests the loading of other servers' blocks against peers that the test plays, message by message.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/remote/peer_cache_rig.h"

namespace quire::test {
namespace {

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
  EXPECT_GT(stats.loading_s, 0.0);
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
  // The taker stores nothing.
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
