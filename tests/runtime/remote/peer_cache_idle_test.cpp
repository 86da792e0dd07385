// Tests when the connections to other servers are closed and their frames are numbered from 0 again, against peers that the test plays.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

#include "runtime/remote/peer_cache_rig.h"

namespace quire::test {
namespace {

// Asks for block 1 on the connection `peer`, which is accepted first if it is null, and expects this number of the question.
void ask_with_number(CacheRig& rig, std::uint32_t number) {
  AskedAnswer answer = begin_ask(*rig.cache, 1);
  if (!rig.asks) {
    rig.asks = std::make_unique<ScriptedPeer>(rig.listener);
    rig.asks->welcome();
  }
  const auto [kind, keys] = rig.asks->next_keys();
  EXPECT_EQ(kind, PeerKind::find);
  EXPECT_EQ(keys.number, number);
  rig.asks->codec.add_found(rig.asks->out(), rig.asks->session, {.number = keys.number, .has = {true}});
  rig.asks->flush();
  EXPECT_EQ(in_time(std::move(answer)).has, std::vector<bool>{true});
}

void load_with_number(CacheRig& rig, std::uint32_t number) {
  std::future<TierOutcome> outcome = begin_load(*rig.cache, 1);
  if (!rig.loads) rig.accept_loads();
  const auto [kind, keys] = rig.loads->next_keys();
  EXPECT_EQ(kind, PeerKind::take);
  EXPECT_EQ(keys.number, number);
  send_shelf_block(*rig.loads, keys.number, 1);
  EXPECT_EQ(in_time(std::move(outcome)), TierOutcome::done);
}

TEST(PeerCacheIdle, ClosesEachConnectionThatAwaitsNothing) {
  CacheRig rig([](PeerCacheOptions& options) { options.idle_s = 0.0; });
  for (int round = 0; round < 3; ++round) {
    ask_with_number(rig, 0);
    EXPECT_TRUE(rig.asks->is_closed());
    rig.asks.reset();
    load_with_number(rig, 0);
    EXPECT_TRUE(rig.loads->is_closed());
    rig.loads.reset();
  }
  EXPECT_FALSE(rig.listener.has_connection());
  EXPECT_EQ(rig.cache->last_problem(), "") << "an idle connection is no problem";
}

TEST(PeerCacheIdle, ClosesBothConnectionsAfterTheLargestNumberOfOne) {
  CacheRig rig([](PeerCacheOptions& options) { options.max_numbers = 2; });
  for (std::uint32_t number = 0; number <= 2; ++number) ask_with_number(rig, number);
  EXPECT_TRUE(rig.asks->is_closed());
  rig.asks.reset();
  ask_with_number(rig, 0);
  for (std::uint32_t number = 0; number <= 2; ++number) load_with_number(rig, number);
  EXPECT_TRUE(rig.loads->is_closed());
  EXPECT_TRUE(rig.asks->is_closed());
  rig.asks.reset();
  rig.loads.reset();
  ask_with_number(rig, 0);
  load_with_number(rig, 0);
  // The loads' connection is closed with the questions' connection, too.
  for (std::uint32_t number = 1; number <= 2; ++number) ask_with_number(rig, number);
  EXPECT_TRUE(rig.asks->is_closed());
  EXPECT_TRUE(rig.loads->is_closed());
  EXPECT_EQ(rig.cache->last_problem(), "");
}

}  // namespace
}  // namespace quire::test
