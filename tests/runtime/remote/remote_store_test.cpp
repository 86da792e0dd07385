// Tests a store in the network: a load returns the block of that key or a miss, whatever the store does, and every job ends.
#include "runtime/remote/remote_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <thread>

#include "runtime/remote/toy_redis.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kRemoteBlock = 900;

class RemoteClient {
 public:
  explicit RemoteClient(const std::string& url, double timeout_s = 5.0, std::uint8_t fingerprint = 7) {
    store_ = RemoteStore::open({.address = parse_remote_address(url).value(),
                                .secret = std::vector(16, std::byte{9}),
                                .fingerprint = tier_fingerprint(fingerprint),
                                .num_places = 64,
                                .group_bytes = {kRemoteBlock, kRemoteBlock - 4, kRemoteBlock - 8},
                                .ttl_s = 60,
                                .timeout_s = timeout_s})
                 .value();
  }
  RemoteStore* operator->() { return store_.get(); }

  TierOutcome store(std::uint64_t number) {
    std::promise<TierOutcome> over;
    submit_store(number, [&](TierOutcome outcome) { over.set_value(outcome); });
    return over.get_future().get();
  }
  void submit_store(std::uint64_t number, std::function<void(TierOutcome)> over) {
    store_->submit({.verb = TierJob::Verb::store,
                    .place = 0,
                    .name = tier_name(number),
                    .bytes = bytes_of(number),
                    .copy =
                        [number](std::span<std::byte> bytes) {
                          std::ranges::copy(tier_block(number, bytes.size()), bytes.begin());
                          return true;
                        },
                    .over = std::move(over)});
  }
  Loaded load(std::uint64_t number) {
    std::promise<Loaded> over;
    submit_load(number, [&](Loaded loaded) { over.set_value(loaded); });
    return over.get_future().get();
  }
  void submit_load(std::uint64_t number, std::function<void(Loaded)> over) {
    const auto is_right = std::make_shared<bool>(false);
    store_->submit({.verb = TierJob::Verb::load,
                    .place = 0,
                    .name = tier_name(number),
                    .bytes = bytes_of(number),
                    .copy =
                        [is_right, number](std::span<std::byte> bytes) {
                          *is_right = std::ranges::equal(bytes, tier_block(number, bytes.size()));
                          return true;
                        },
                    .over =
                        [is_right, over = std::move(over)](TierOutcome outcome) {
                          over(outcome == TierOutcome::absent    ? Loaded::absent
                               : outcome == TierOutcome::refused ? Loaded::refused
                               : outcome == TierOutcome::done    ? (*is_right ? Loaded::right : Loaded::wrong)
                                                                 : Loaded::failed);
                        }});
  }
  RemoteStore::Answer ask(const std::vector<std::uint64_t>& numbers) {
    std::promise<RemoteStore::Answer> over;
    submit_ask(numbers, [&](const RemoteStore::Answer& answer) { over.set_value(answer); });
    return over.get_future().get();
  }
  void submit_ask(const std::vector<std::uint64_t>& numbers, std::function<void(const RemoteStore::Answer&)> over) {
    std::vector<OffloadKey> names;
    names.reserve(numbers.size());
    for (const std::uint64_t number : numbers) names.push_back(tier_name(number));
    store_->ask(std::move(names), [] { return true; }, std::move(over));
  }

 private:
  static std::uint32_t bytes_of(std::uint64_t number) { return static_cast<std::uint32_t>(kRemoteBlock - 4 * (number % 3)); }

  std::unique_ptr<RemoteStore> store_;
};

TEST(RemoteStore, FindsBlocksThatOtherServersHaveStored) {
  ToyRedis redis;
  RemoteClient first(redis.url()), second(redis.url()), other_model(redis.url(), 5.0, 8);
  EXPECT_EQ(first.load(1), Loaded::absent);
  for (const std::uint64_t number : {1, 2, 3}) EXPECT_EQ(first.store(number), TierOutcome::done);
  for (const std::uint64_t number : {3, 2, 1}) EXPECT_EQ(second.load(number), Loaded::right);
  EXPECT_EQ(second.ask({1, 4, 2}).has, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(other_model.ask({1, 4, 2}).has, (std::vector<bool>{false, false, false}));
  EXPECT_EQ(other_model.load(1), Loaded::absent);
  const SharedStoreStats stats = second->stats();
  EXPECT_EQ(stats.num_loaded, 3U);
  EXPECT_EQ(stats.bytes_loaded, 3 * kRemoteBlock - 12);
  EXPECT_EQ(stats.num_asked, 3U);
  EXPECT_EQ(stats.num_found, 2U);
}

TEST(RemoteStore, ForgetsKeysOnRequest) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  EXPECT_EQ(client.store(1), TierOutcome::done);
  EXPECT_EQ(client.store(2), TierOutcome::done);
  client->forget(tier_name(1));
  EXPECT_EQ(client.store(1), TierOutcome::done) << "commands for one key take effect in order";
  EXPECT_EQ(client.load(1), Loaded::right);
  client->mark_untrusted(tier_name(2));
  EXPECT_EQ(client.load(2), Loaded::absent);
  EXPECT_EQ(client.store(2), TierOutcome::cancelled);
  EXPECT_EQ(client.ask({1, 2}).has, (std::vector<bool>{true, false}));
  // The store's thread deletes the value later.
  EXPECT_TRUE(comes_true([&] { return redis.values().size() == 1; }));
  client->forget(tier_name(1));
  EXPECT_TRUE(comes_true([&] { return redis.values().empty(); }));
}

TEST(RemoteStore, RefusesAValueUnderAnotherKey) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  EXPECT_EQ(client.store(0), TierOutcome::done);
  EXPECT_EQ(client.store(3), TierOutcome::done);
  const auto values = redis.values();
  redis.put(values.begin()->first, values.rbegin()->second);
  redis.put(values.rbegin()->first, values.begin()->second);
  EXPECT_EQ(client.ask({0, 3}).has, (std::vector<bool>{true, true})) << "both values have the right length";
  EXPECT_EQ(client.load(0), Loaded::refused);
  EXPECT_EQ(client.load(3), Loaded::refused);
  EXPECT_EQ(client->stats().num_refused, 2U);
}

TEST(RemoteStore, RecoversAfterTheStoreWasFullUnreachableOrStalled) {
  ToyRedis redis;
  RemoteClient client(redis.url(), 2.0);
  EXPECT_EQ(client.store(1), TierOutcome::done);
  redis.is_full = true;
  EXPECT_EQ(client.store(2), TierOutcome::failed);
  EXPECT_NE(client->last_problem().find("OOM"), std::string::npos);
  EXPECT_EQ(client.load(1), Loaded::right) << "loads still work";
  redis.is_full = false;
  redis.stalls = true;
  EXPECT_EQ(client.load(1), Loaded::failed);
  EXPECT_FALSE(client.ask({1}).is_whole);
  redis.stalls = false;
  EXPECT_EQ(client.load(1), Loaded::right);
  redis.close();
  EXPECT_EQ(client.load(1), Loaded::failed);
  EXPECT_EQ(client.store(2), TierOutcome::failed);
  EXPECT_FALSE(client.ask({1}).is_whole);
  redis.open();
  EXPECT_EQ(client.load(1), Loaded::right);
  redis.forget_all();
  EXPECT_EQ(client.load(1), Loaded::absent);
}

TEST(RemoteStore, ReportsAWrongPassword) {
  ToyRedis redis;
  redis.password = "open sesame";
  RemoteClient wrong(fmt::format("redis://:sesame@127.0.0.1:{}", redis.port()));
  EXPECT_EQ(wrong.store(1), TierOutcome::failed);
  EXPECT_NE(wrong->last_problem().find("WRONGPASS"), std::string::npos) << wrong->last_problem();
  RemoteClient right(fmt::format("redis://:open%20sesame@127.0.0.1:{}/3", redis.port()));
  EXPECT_EQ(right.store(1), TierOutcome::done);
  EXPECT_EQ(right.load(1), Loaded::right);
}

TEST(RemoteStore, FollowsClusterRedirects) {
  ToyRedis first, second;
  std::atomic<int> num_sent = 0;
  first.redirect = [&](const std::string& key, bool) -> std::optional<std::string> {
    const std::uint16_t slot = cluster_slot_of(key);
    if (slot % 2 == 0) return std::nullopt;
    ++num_sent;
    return fmt::format("MOVED {} 127.0.0.1:{}", slot, second.port());
  };
  second.redirect = [&](const std::string& key, bool) -> std::optional<std::string> {
    const std::uint16_t slot = cluster_slot_of(key);
    if (slot % 2 == 1) return std::nullopt;
    return fmt::format("MOVED {} 127.0.0.1:{}", slot, first.port());
  };
  RemoteClient client(first.url());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t number = 0; number < 20; ++number) {
      EXPECT_EQ(client.store(number), TierOutcome::done);
      EXPECT_EQ(client.load(number), Loaded::right);
    }
    if (round == 0) num_sent = 0;
  }
  EXPECT_EQ(num_sent, 0) << "the client remembers the server of each slot";
  EXPECT_GT(second.values().size(), 3U);
  EXPECT_EQ(first.values().size() + second.values().size(), 20U);
}

TEST(RemoteStore, FollowsAskRedirectsAndEndsRedirectLoops) {
  ToyRedis first, second;
  std::atomic<const char*> nonsense = nullptr;
  std::atomic<bool> in_a_circle = false;
  const auto circle = [&](const std::string& key) {
    return fmt::format("MOVED {} 127.0.0.1:{}", cluster_slot_of(key), cluster_slot_of(key) % 2 == 0 ? first.port() : second.port());
  };
  second.redirect = [&](const std::string& key, bool is_asking) -> std::optional<std::string> {
    if (in_a_circle) return circle(key);
    if (is_asking) return std::nullopt;
    return fmt::format("MOVED {} 127.0.0.1:{}", cluster_slot_of(key), first.port());
  };
  first.redirect = [&](const std::string& key, bool) -> std::optional<std::string> {
    if (in_a_circle) return circle(key);
    if (const char* answer = nonsense) return answer;
    return fmt::format("ASK {} 127.0.0.1:{}", cluster_slot_of(key), second.port());
  };
  RemoteClient client(first.url());
  EXPECT_EQ(client.store(1), TierOutcome::done);
  EXPECT_EQ(client.load(1), Loaded::right);
  EXPECT_EQ(second.values().size(), 1U);
  for (const char* answer : {"MOVED", "MOVED 1", "MOVED 1 :", "MOVED 1 host:0", "MOVED 1 h:99999", "ASK 1 127.0.0.1:x"}) {
    nonsense = answer;
    EXPECT_EQ(client.load(1), Loaded::failed) << answer;
  }
  in_a_circle = true;
  EXPECT_EQ(client.load(2), Loaded::failed);
}

// The values are from Redis Cluster's specification.
TEST(RemoteStore, ComputesTheSlotsOfRedisCluster) {
  EXPECT_EQ(cluster_slot_of("123456789"), 0x31c3 % 16'384);
  EXPECT_EQ(cluster_slot_of("foo{bar}zap"), cluster_slot_of("bar"));
  EXPECT_EQ(cluster_slot_of("foo{{bar}}zap"), cluster_slot_of("{bar"));
  EXPECT_NE(cluster_slot_of("foo{}{bar}"), cluster_slot_of("bar"));
}

TEST(RemoteStore, StoresBlocksForItsTimeAndRenewsLoadedBlocks) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  EXPECT_EQ(client.store(1), TierOutcome::done);
  EXPECT_EQ(client.store(2), TierOutcome::done);
  ASSERT_EQ(redis.values().size(), 2U);
  for (const auto& [key, seconds] : redis.ttls()) EXPECT_EQ(seconds, "60");
  EXPECT_EQ(redis.ttls().size(), 2U);
  redis.forget_ttls();
  EXPECT_EQ(client.load(1), Loaded::right);
  EXPECT_TRUE(comes_true([&] { return redis.ttls().size() == 1; })) << "a loaded block stays for longer";
  EXPECT_EQ(redis.ttls().begin()->second, "60");
  // Blocks that were not loaded are not renewed. Commands of the stores' pool for other keys may use another connection.
  redis.forget_ttls();
  const std::string first_key = redis.values().begin()->first, last_key = redis.values().rbegin()->first;
  redis.put(first_key, "no block");
  redis.put(last_key, "no block");
  EXPECT_EQ(client.load(1), Loaded::refused);
  EXPECT_EQ(client.load(2), Loaded::refused);
  EXPECT_EQ(client.load(4), Loaded::absent);
  const std::uint64_t num_commands = redis.num_commands;
  EXPECT_EQ(client.ask({1}).has, std::vector<bool>{false});
  EXPECT_TRUE(redis.ttls().empty());
  EXPECT_EQ(redis.num_commands, num_commands + 1);
}

TEST(RemoteStore, CountsLoadsAndStoresByTheirOutcome) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  EXPECT_EQ(client->num_places(), 64U);
  EXPECT_EQ(client->block_bytes(), kRemoteBlock);
  EXPECT_TRUE(client->service().loads && client->service().stores);
  const auto run = [&](TierJob::Verb verb, std::uint64_t number) {
    std::promise<TierOutcome> over;
    client->submit({.verb = verb,
                    .place = 0,
                    .name = tier_name(number),
                    .bytes = kRemoteBlock,
                    .copy = [](std::span<std::byte>) { return false; },
                    .over = [&](TierOutcome outcome) { over.set_value(outcome); }});
    return over.get_future().get();
  };
  EXPECT_EQ(run(TierJob::Verb::store, 0), TierOutcome::cancelled);
  EXPECT_TRUE(redis.values().empty()) << "nothing was sent";
  EXPECT_EQ(client.load(0), Loaded::absent);
  EXPECT_EQ(client.store(0), TierOutcome::done);
  EXPECT_EQ(redis.values().begin()->second.size(), 16 + kRemoteBlock + 32);
  EXPECT_EQ(run(TierJob::Verb::load, 0), TierOutcome::cancelled);
  EXPECT_EQ(client.load(0), Loaded::right);
  const SharedStoreStats stats = client->stats();
  EXPECT_EQ(stats.num_stored, 1U);
  EXPECT_EQ(stats.bytes_stored, kRemoteBlock);
  EXPECT_EQ(stats.num_loaded, 1U);
  EXPECT_EQ(stats.bytes_loaded, kRemoteBlock);
  EXPECT_EQ(stats.num_cancelled, 2U);
  EXPECT_EQ(stats.num_absent, 1U);
  EXPECT_EQ(stats.num_answered_loads, 3U);
  EXPECT_GT(stats.loading_s, 0.0);
  EXPECT_EQ(stats.bytes_read, 2 * (16 + kRemoteBlock + 32)) << "loaded values count with their header and MAC";
  EXPECT_EQ(stats.num_failed_loads + stats.num_failed_stores + stats.num_refused, 0U);
}

TEST(RemoteStore, AsksForNothingThatIsNotWantedAnyMore) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  EXPECT_EQ(client.store(1), TierOutcome::done);
  const std::uint64_t num_commands = redis.num_commands;
  std::promise<RemoteStore::Answer> over;
  client->ask({tier_name(1), tier_name(2)}, [] { return false; }, [&](const RemoteStore::Answer& answer) { over.set_value(answer); });
  const RemoteStore::Answer answer = over.get_future().get();
  EXPECT_EQ(answer.has, (std::vector<bool>{false, false}));
  EXPECT_FALSE(answer.is_whole);
  EXPECT_EQ(redis.num_commands, num_commands);
  EXPECT_EQ(client->stats().num_asked, 2U);
  EXPECT_EQ(client->stats().num_found, 0U);
  EXPECT_TRUE(client.ask({1}).is_whole);
  EXPECT_EQ(client->stats().num_found, 1U);
  // The first key is still wanted, the second one is not.
  std::promise<RemoteStore::Answer> second;
  std::atomic<int> num_asked = 0;
  client->ask(
      {tier_name(1), tier_name(2)}, [&] { return ++num_asked == 1; }, [&](const RemoteStore::Answer& one) { second.set_value(one); });
  EXPECT_EQ(second.get_future().get().has, (std::vector<bool>{true, false}));
  EXPECT_EQ(client->stats().num_found, 1U) << "the answer comes too late to be used";
}

TEST(RemoteStore, HoldsOnlyBlocksOfTheRightLength) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  EXPECT_EQ(client.store(0), TierOutcome::done);
  const auto [key, value] = *redis.values().begin();
  for (const int more : {-1, 1, 0}) {
    redis.put(key, std::string(value.size() + static_cast<std::size_t>(more), 'x'));
    const RemoteStore::Answer answer = client.ask({0});
    EXPECT_EQ(answer.has[0], more == 0) << more;
    EXPECT_TRUE(answer.is_whole);
  }
}

TEST(RemoteStore, ProbesABlockThatCannotExistOrTheLastBlocks) {
  ToyRedis redis;
  RemoteClient client(redis.url());
  const auto probe = [&] {
    client->probe_loads();
    EXPECT_TRUE(comes_true([&] { return !client->is_probing(); }));
    return client->stats();
  };
  EXPECT_EQ(probe().num_absent, 1U);
  EXPECT_EQ(client->stats().num_answered_loads, 1U);
  EXPECT_EQ(client.store(0), TierOutcome::done);
  const SharedStoreStats stats = probe();
  EXPECT_EQ(stats.num_absent, 1U);
  EXPECT_EQ(stats.num_cancelled, 8U);
  EXPECT_EQ(stats.num_answered_loads, 9U);
  EXPECT_EQ(stats.num_loaded, 0U);
  redis.close();
  EXPECT_EQ(probe().num_failed_loads, 8U);
}

TEST(RemoteStore, ReportsAProblemOfEachKindOfCommand) {
  {
    ToyRedis redis;
    RemoteClient client(redis.url());
    EXPECT_EQ(client->last_problem(), "");
    redis.redirect = [](const std::string&, bool) -> std::optional<std::string> { return "ERR asked"; };
    EXPECT_FALSE(client.ask({1}).is_whole);
    EXPECT_EQ(client->last_problem(), "ERR asked");
  }
  ToyRedis redis;
  redis.is_full = true;
  RemoteClient client(redis.url());
  EXPECT_EQ(client.store(1), TierOutcome::failed);
  EXPECT_EQ(client->last_problem(), "OOM command not allowed when used memory > 'maxmemory'.");
  EXPECT_EQ(client->stats().num_failed_stores, 1U);
}

TEST(RemoteStore, RefusesCertificatesThatCannotBeRead) {
  RemoteAddress address = parse_remote_address("rediss://127.0.0.1").value();
  address.ca_file = "/nowhere/ca.pem";
  const auto opened = RemoteStore::open({.address = address, .secret = {}, .num_places = 1, .group_bytes = {100}, .ttl_s = 1});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().field, "kv_remote_ca");
  address.is_tls = false;
  EXPECT_TRUE(RemoteStore::open({.address = address, .secret = {}, .num_places = 1, .group_bytes = {100}, .ttl_s = 1}))
      << "without TLS the certificates are not read";
}

// Runs 10,000 operations, several at a time. Every one ends, whatever the store answers.
TEST(RemoteStore, ReturnsNoWrongByteFromAHostileStore) {
  constexpr std::uint32_t kOperations = 10'000, kMostOperations = 100'000, kAtOnce = 16, kNames = 40;
  ToyRedis redis;
  redis.fault_chance = 0.3;
  redis.stall_s = 0.05;
  RemoteClient client(redis.url(), 0.04);
  Random random(17);
  std::array<std::atomic<std::uint32_t>, 5> num_loaded{};
  std::uint32_t num_begun = 0;
  const auto num_of = [&](Loaded loaded) { return num_loaded[static_cast<std::size_t>(loaded)].load(); };
  const auto has_met_all = [&] {
    return num_of(Loaded::right) > 500 && num_of(Loaded::refused) > 100 && num_of(Loaded::absent) > 20 && num_of(Loaded::failed) > 100;
  };
  while (num_begun < kOperations || (num_begun < kMostOperations && !has_met_all())) {
    std::latch num_left(kAtOnce);
    for (std::uint32_t i = 0; i < kAtOnce; ++i, ++num_begun) {
      const std::uint64_t number = random.below(kNames);
      if (random.chance(0.3)) {
        client.submit_store(number, [&](TierOutcome) { num_left.count_down(); });
      } else if (random.chance(0.2)) {
        client.submit_ask({number, random.below(kNames)}, [&](const RemoteStore::Answer&) { num_left.count_down(); });
      } else {
        client.submit_load(number, [&](Loaded loaded) {
          ++num_loaded[static_cast<std::size_t>(loaded)];
          num_left.count_down();
        });
      }
    }
    num_left.wait();
  }
  EXPECT_EQ(num_of(Loaded::wrong), 0U);
  EXPECT_TRUE(has_met_all()) << "the test covers too few cases";
  redis.fault_chance = 0.0;
  bool continues = false;  // within 40 ms, which a busy machine may need more than one try for
  for (int i = 0; i < 100 && !continues; ++i) continues = client.store(1) == TierOutcome::done && client.load(1) == Loaded::right;
  EXPECT_TRUE(continues);
}

TEST(RemoteStore, EndsWhileAStoreStalls) {
  ToyRedis redis;
  redis.stalls = true;
  std::atomic<int> num_over = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    RemoteClient client(redis.url(), 60.0);
    for (std::uint64_t number = 0; number < 50; ++number) {
      client.submit_store(number, [&](TierOutcome) { ++num_over; });
      client.submit_load(number, [&](Loaded) { ++num_over; });
      client.submit_ask({number}, [&](const RemoteStore::Answer&) { ++num_over; });
    }
  }
  EXPECT_EQ(num_over, 150);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace quire::test
