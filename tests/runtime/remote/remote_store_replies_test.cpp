// Tests a store in the network against replies that the test gives: what counts as stored, as found and as a problem.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/remote_store.h"
#include "runtime/remote/scripted_store.h"
#include "runtime/remote/toy_redis.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

std::unique_ptr<RemoteStore> open_store(std::uint16_t port, bool yields_cores = false) {
  return RemoteStore::open({.address = address_of_port(port),
                            .secret = std::vector(16, std::byte{9}),
                            .fingerprint = tier_fingerprint(7),
                            .num_places = 64,
                            .group_bytes = {900, 900, 900},
                            .ttl_s = 60,
                            .yields_cores = yields_cores,
                            .timeout_s = 60.0})
      .value();
}

std::future<TierOutcome> begin_job(RemoteStore& store, TierJob::Verb verb) {
  const auto over = std::make_shared<std::promise<TierOutcome>>();
  store.submit({.verb = verb,
                .place = 0,
                .name = tier_name(1),
                .bytes = 900,
                .copy =
                    [](std::span<std::byte> bytes) {
                      std::ranges::fill(bytes, std::byte{5});
                      return true;
                    },
                .over = [over](TierOutcome outcome) { over->set_value(outcome); }});
  return over->get_future();
}

TierOutcome outcome_of(std::future<TierOutcome> outcome) {
  if (outcome.wait_for(std::chrono::duration<double>(2 * kMuchTooLong_s)) == std::future_status::ready) return outcome.get();
  ADD_FAILURE() << "the job has no end";
  return {};
}

TEST(RemoteStoreReplies, OnlyTheStatusOkMeansThatABlockIsStored) {
  const std::vector<std::pair<std::string, TierOutcome>> cases = {
      {"+OK\r\n", TierOutcome::done},   {"+QUEUED\r\n", TierOutcome::failed}, {"$2\r\nOK\r\n", TierOutcome::failed},
      {"-OK\r\n", TierOutcome::failed}, {":1\r\n", TierOutcome::failed},      {"$-1\r\n", TierOutcome::failed}};
  for (const auto& [reply, outcome] : cases) {
    TestListener listener;
    const auto store = open_store(listener.port());
    std::future<TierOutcome> stored = begin_job(*store, TierJob::Verb::store);
    ScriptedStore redis(listener);
    EXPECT_TRUE(comes_true([&] { return redis.heard().ends_with("$2\r\nEX\r\n$2\r\n60\r\n"); })) << reply;
    redis.say(reply);
    EXPECT_EQ(outcome_of(std::move(stored)), outcome) << reply;
    EXPECT_EQ(store->stats().num_stored, outcome == TierOutcome::done ? 1U : 0U) << reply;
    EXPECT_EQ(store->stats().num_failed_stores, outcome == TierOutcome::done ? 0U : 1U) << reply;
  }
}

// The replies to stores and questions are short. A reply to a load has at most the bytes of a value.
TEST(RemoteStoreReplies, LimitsTheRepliesOfEachKindOfCommand) {
  constexpr std::size_t kShort = std::size_t{64} << 10U, kValue = 16 + 900 + 32;
  struct Case {
    const char* command;
    std::function<void(RemoteStore&)> begin;
    std::size_t limit;
  };
  const std::vector<Case> cases = {
      {"SET", [](RemoteStore& store) { begin_job(store, TierJob::Verb::store); }, kShort},
      {"STRLEN", [](RemoteStore& store) { store.ask({tier_name(1)}, [] { return true; }, [](const SharedStore::Answer&) {}); }, kShort},
      {"GET", [](RemoteStore& store) { begin_job(store, TierJob::Verb::load); }, kShort + kValue}};
  for (const Case& one : cases)
    for (const bool is_too_long : {false, true}) {
      TestListener listener;
      const auto store = open_store(listener.port());
      one.begin(*store);
      ScriptedStore redis(listener);
      EXPECT_TRUE(comes_true([&] { return redis.heard().contains(one.command); })) << one.command;
      // The reply is not whole: the store would send more.
      const std::string head = "$200000\r\n";
      redis.say(head + std::string(one.limit - head.size() + (is_too_long ? 100 : -100), 'x'));
      if (is_too_long) EXPECT_TRUE(redis.is_closed()) << one.command;
      if (is_too_long) EXPECT_EQ(store->last_problem(), "the store sent a reply that is longer than any block") << one.command;
      if (is_too_long) continue;
      redis.say(std::string(150, 'x'));
      EXPECT_TRUE(redis.is_closed()) << one.command;
    }
}

TEST(RemoteStoreReplies, SendsManyQuestionsOverOneConnection) {
  TestListener listener;
  const auto store = open_store(listener.port());
  std::vector<OffloadKey> names;
  for (std::uint64_t number = 0; number < 40; ++number) names.push_back(tier_name(number));
  std::promise<std::vector<bool>> over;
  store->ask(names, [] { return true; }, [&](const SharedStore::Answer& answer) { over.set_value(answer.has); });
  ScriptedStore redis(listener);
  const auto num_questions = [&] {
    std::size_t count = 0;
    for (std::size_t at = redis.heard().find("STRLEN"); at != std::string::npos; at = redis.heard().find("STRLEN", at + 1)) ++count;
    return count;
  };
  EXPECT_TRUE(comes_true([&] { return num_questions() == 40; })) << "no question waits for an answer";
  EXPECT_FALSE(listener.has_connection());
  for (int i = 0; i < 40; ++i) redis.say(i % 2 == 0 ? ":948\r\n" : ":0\r\n");
  const std::vector<bool> has = over.get_future().get();
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(has[i], i % 2 == 0) << i;
}

TEST(RemoteStoreReplies, AStoreThatYieldsCoresStoresBlocks) {
  ToyRedis redis;
  const auto store = open_store(redis.port(), true);
  EXPECT_EQ(outcome_of(begin_job(*store, TierJob::Verb::store)), TierOutcome::done);
  EXPECT_EQ(outcome_of(begin_job(*store, TierJob::Verb::load)), TierOutcome::done);
}

}  // namespace
}  // namespace quire::test
