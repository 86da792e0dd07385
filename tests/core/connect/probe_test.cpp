// Tests Core::probe(): it reports what the request then finds, tier by tier, and it changes no state.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "core/connect/composite_connector.h"
#include "core/connect/grouped_config.h"
#include "core/connect/offload_driver.h"
#include "support/rounds.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// Draws one of a few topics, each with a few continuations: prompts share prefixes of every length.
Tokens branching_prompt(Random& random) {
  const auto topic = static_cast<TokenId>(random.below(6));
  const auto num_shared = random.between(0, 40), num_own = random.between(1, 40);
  Tokens tokens;
  for (std::uint64_t i = 0; i < num_shared; ++i) tokens.push_back(100 * (topic + 1) + static_cast<TokenId>(i));
  const auto branch = static_cast<TokenId>(random.below(3));
  for (std::uint64_t i = 0; i < num_own; ++i) tokens.push_back(1000 * (branch + 1) + static_cast<TokenId>(i));
  return tokens;
}

struct Seen {
  std::vector<std::uint8_t> core;
  std::vector<OffloadKey> resident;
  std::vector<std::vector<OffloadKey>> order;
  std::size_t num_tracked = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen all_of(const OffloadDriver& o) {
  Seen seen{.core = o.d.core->checkpoint(), .resident = o.connector->ledger().resident_keys(), .order = {}};
  for (const auto& list : o.connector->ledger().snapshot().lists) seen.order.emplace_back(list.begin(), list.end());
  seen.num_tracked = o.connector->num_tracked();
  return seen;
}

struct ProbePlay {
  const char* name;
  std::vector<std::uint32_t> windows;
  const char* policy = "lru";
  std::uint32_t store_threshold = 0;
  std::uint32_t cpu_bytes = 40;
};

class ProbeTest : public testing::TestWithParam<ProbePlay> {};

TEST_P(ProbeTest, PredictsWhatTheRequestFindsAndChangesNothing) {
  const ProbePlay& play = GetParam();
  Random random(7);
  CoreConfig config = grouped_config(play.windows, 24 * static_cast<std::uint32_t>(play.windows.size()));
  OffloadDriver o({.cpu_bytes_to_use = play.cpu_bytes, .eviction_policy = play.policy, .store_threshold = play.store_threshold}, config);
  std::uint64_t num_local = 0, num_external = 0, num_probed = rounds_of(2500);
  for (std::uint64_t id = 1; id <= num_probed; ++id) {
    const Tokens prompt = branching_prompt(random);
    NewRequest request = CoreDriver::request(id, prompt, 1 + static_cast<std::uint32_t>(random.below(6)));
    request.cache_salt = random.chance(0.1) ? "other" : "";
    request.loads_nothing = random.chance(0.05);
    const Seen before = all_of(o);
    const CacheProbe probe = o.d.core->probe(request).value();
    ASSERT_EQ(before, all_of(o)) << "request " << id;
    ASSERT_TRUE(probe.is_external_known);
    o.d.add(request);
    std::optional<std::int64_t> cached, external;
    for (int i = 0; i < 100 && !o.is_over(); ++i) {
      o.plan();
      for (const Update& update : o.apply().updates) {
        if (update.id != id || cached) continue;
        cached = update.num_cached_tokens;
        external = update.num_external_computed_tokens;
      }
    }
    ASSERT_TRUE(cached.has_value());
    ASSERT_EQ(probe.num_tokens, prompt.size());
    // The last token is computed even if all blocks are loaded.
    ASSERT_EQ(std::min<std::int64_t>(probe.num_local_tokens + probe.num_external_tokens(), probe.num_tokens - 1), *cached)
        << "request " << id;
    num_local += probe.num_local_tokens;
    num_external += probe.num_external_tokens();
    if (random.chance(0.2)) o.forget_cached();
  }
  EXPECT_GT(num_local, num_probed) << "the prefix cache had hits";
  EXPECT_GT(num_external, num_probed) << "the tier had hits";
}

INSTANTIATE_TEST_SUITE_P(Tiers, ProbeTest,
                         testing::Values(ProbePlay{"full", {0}}, ProbePlay{"arc", {0}, "arc"}, ProbePlay{"window", {12}},
                                         ProbePlay{"full_and_window", {0, 20}}, ProbePlay{"stored_when_seen_twice", {0}, "lru", 2},
                                         ProbePlay{"large", {0}, "s3fifo", 0, 4000}),
                         [](const auto& play) { return std::string(play.param.name); });

TEST(Probe, PassesTheRequestIdToTheConnector) {
  ScriptedConnector connector;
  connector.found.emplace();
  const auto core = Core::create(sync_config(), {.connector = &connector}).value();
  const Tokens prompt = CoreDriver::prompt(1, 17);
  for (const std::uint64_t id : {7U, 3U}) EXPECT_TRUE(core->probe(CoreDriver::request(id, prompt, 1)).value().is_external_known);
  EXPECT_EQ(connector.asked, Ids({7, 3}));
}

TEST(Probe, CountsBlocksThatOtherRequestsAreLoading) {
  OffloadDriver o({.cpu_bytes_to_use = 32}, recompute_config());
  o.add(1, 1, 17, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 17, 1);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U) << "request 2 loads its blocks";
  const Tokens prompt = CoreDriver::prompt(1, 17);
  const CacheProbe probe = o.d.core->probe(CoreDriver::request(3, prompt, 1)).value();
  EXPECT_EQ(probe.num_local_tokens, 0U);
  EXPECT_EQ(probe.external, (std::vector<TierMatch>{{.tier = 0, .num_tokens = 16, .load_async = true}}));
  o.apply();
  o.run();
}

TEST(Probe, ReportsThePartOfEachTier) {
  const auto config = recompute_config();
  const auto tier = [&] {
    return std::shared_ptr<OffloadConnector>(OffloadConnector::create({.cpu_bytes_to_use = 32}, config, 1).value());
  };
  const auto near = tier(), far = tier();
  const std::vector<CompositeMember> members = {{.connector = near, .tier = 3}, {.connector = far, .tier = 5}};
  CompositeConnector stacked(members, CompositeChoice::stacked), first(members), longest(members, CompositeChoice::longest);
  const auto core = Core::create(config, {.connector = &stacked}).value();
  const Tokens prompt = CoreDriver::prompt(1, 17);
  // The near tier has two blocks of a prompt, the far one all four.
  const auto fill = [&](OffloadConnector& connector, std::uint32_t num_blocks) {
    CoreDriver d(config);
    d.add(CoreDriver::request(1, prompt, 8));
    d.step();
    for (std::uint32_t i = 0; i < num_blocks; ++i) {
      OffloadKey key;
      std::ranges::copy(d.view(1).block_hashes.subspan(std::size_t{i} * 32, 32), key.hash.begin());
      ASSERT_TRUE(connector.adopt(key).has_value());
      connector.adopted(key, true);
    }
  };
  fill(*near, 2);
  fill(*far, 4);
  const auto matches = [&](Connector& connector) {
    const auto asked = Core::create(config, {.connector = &connector}).value();
    return asked->probe(CoreDriver::request(1, prompt, 1)).value().external;
  };
  EXPECT_EQ(matches(stacked), (std::vector<TierMatch>{{3, 8, true}, {5, 8, true}}));
  EXPECT_EQ(matches(first), (std::vector<TierMatch>{{3, 8, true}}));
  EXPECT_EQ(matches(longest), (std::vector<TierMatch>{{5, 16, true}}));
  EXPECT_EQ(stacked.num_tracked(), 0U);
}

TEST(Probe, ReportsUnknownWhenTheConnectorDoesNotKnow) {
  ScriptedConnector connector;
  const auto core = Core::create(sync_config(), {.connector = &connector}).value();
  const Tokens prompt = CoreDriver::prompt(1, 9);
  EXPECT_FALSE(core->probe(CoreDriver::request(1, prompt, 1)).value().is_external_known);
}

TEST(Probe, RefusesAPromptThatAddWouldRefuse) {
  const auto core = Core::create(sync_config()).value();
  const Tokens prompt = CoreDriver::prompt(1, 1000);
  const auto probe = core->probe(CoreDriver::request(1, prompt, 1));
  ASSERT_FALSE(probe.has_value());
  EXPECT_EQ(probe.error().field, "prompt");
}

}  // namespace
}  // namespace quire::test
