// Tests the pauses of peers that fail or stall, against peers that the test plays, message by message.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/remote/peer_cache_rig.h"
#include "runtime/remote/peer_relay.h"

namespace quire::test {
namespace {

template <class Value>
bool is_ready(const std::future<Value>& value) {
  return value.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Asks until the peer is in use again, so that the question waits for its answer, and answers it.
void answer_in_use(CacheRig& rig) {
  EXPECT_TRUE(comes_true([&] {
    AskedAnswer again = begin_ask(*rig.cache, 0);
    std::optional<PeerFrame> frame;
    comes_true([&] {
      rig.asks->link.advance();
      frame = rig.asks->link.next();
      return frame || is_ready(again);
    });
    if (!frame) return false;
    const auto keys = rig.asks->codec.read_keys(*frame, rig.asks->session);
    rig.asks->codec.add_found(rig.asks->out(), rig.asks->session, {.number = keys.value().number, .has = {true}});
    rig.asks->flush();
    EXPECT_TRUE(in_time(std::move(again)).has[0]);
    return true;
  }));
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
  answer_in_use(rig);
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

// Each question loses its connection, and the trial after it is answered. With pauses that double, the last pause would take a minute.
TEST(PeerCacheScript, PausesBrieflyAfterEachAnswerOnceAValidBlockHasCome) {
  CacheRig rig([](PeerCacheOptions& options) { options.initial_backoff_s = 0.01; });
  const auto answer_trial = [&] {
    EXPECT_TRUE(comes_true([&] {
      in_time(begin_ask(*rig.cache, 0));
      return rig.listener.has_connection();
    }));
    rig.asks = std::make_unique<ScriptedPeer>(rig.listener);
    rig.asks->welcome();
    answer_find(*rig.asks);
    answer_in_use(rig);
  };
  rig.find({0});
  std::future<TierOutcome> outcome = begin_load(*rig.cache, 0);
  rig.accept_loads();
  rig.loads->next_keys();
  send_shelf_block(*rig.loads, 1, 0);
  EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::refused);
  answer_trial();
  outcome = begin_load(*rig.cache, 0);
  rig.accept_loads();
  rig.loads->next_keys();
  send_shelf_block(*rig.loads, 0, 0);
  EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::done);
  for (int round = 0; round < 13; ++round) {
    AskedAnswer lost = begin_ask(*rig.cache, 0);
    rig.asks->next_keys();
    rig.asks.reset();
    EXPECT_FALSE(in_time(std::move(lost)).is_whole) << round;
    answer_trial();
  }
}

TEST(PeerCacheScript, GivesALoadItsWholeTimeLimit) {
  Holder holder;
  holder.shelf->put(0);
  PeerCacheOptions options = cache_options({holder.server->port()});
  options.timeout_s = 0.9;
  options.initial_backoff_s = options.max_backoff_s = 0.01;
  PeerCache cache(std::move(options));
  EXPECT_TRUE(comes_true([&] { return in_time(begin_ask(cache, 0)).has[0] && in_time(begin_load(cache, 0)) == TierOutcome::done; }))
      << "a busy machine may need several trials";
}

}  // namespace
}  // namespace quire::test
