// Tests which open transfers a plan waits for: only transfers of blocks that the plan writes to. Also tests what a probe finds for a
// prompt.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "quire/connector.h"
#include "quire/watch.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

Ids fences_of(const StepPlan& plan) {
  Ids ids;
  ids.reserve(plan.fences.size());
  for (const TransferId id : plan.fences) ids.push_back(id.value);
  return ids;
}

TEST(Fences, DelayOnlyWritesToBlocksThatAreBeingStored) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(8), {.connector = &connector});
  const Tokens prompt = CoreDriver::prompt(1, 9);
  d.add(CoreDriver::request(1, prompt, 2));
  d.step();
  const std::vector<BlockId> stored = d.blocks(1);
  ASSERT_EQ(stored.size(), 3U);
  connector.transfers = {transfer_of(RequestId{1}, std::span(stored).first(2), TransferDirection::store)};
  EXPECT_TRUE(fences_of(d.plan()).empty());
  ASSERT_TRUE(connector.ids.at(0).has_value());
  d.apply();
  ASSERT_FALSE(d.known(1));
  WatchFrame frame;
  d.core->watch(frame);
  for (std::size_t i = 0; i < stored.size(); ++i)
    EXPECT_EQ((frame.blocks[stored[i].value].flags & WatchedBlock::kStoring) != 0, i < 2) << i;
  // The request begins with a table that contains the stored blocks, and writes after them.
  d.add(CoreDriver::request(2, prompt, 1));
  const StepPlan& found = d.plan();
  ASSERT_EQ(found.scheduled.size(), 1U);
  EXPECT_EQ(found.scheduled[0].num_computed_tokens, 8U);
  EXPECT_EQ(d.blocks(2)[1], stored[1]);
  EXPECT_TRUE(fences_of(found).empty());
  d.apply();
  d.add(3, 26, 2);  // takes all seven blocks
  EXPECT_EQ(fences_of(d.plan()), Ids{connector.ids[0]->value});
  d.apply();
  EXPECT_TRUE(fences_of(d.plan()).empty()) << "a plan waits for a transfer only once";
  d.apply();
}

TEST(Probe, LeavesATokenToComputeUnlessTheLoadIsAsynchronous) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  const Tokens prompt = CoreDriver::prompt(1, 21);
  d.add(CoreDriver::request(1, Tokens(prompt.begin(), prompt.begin() + 9), 1));
  d.step();
  const NewRequest asked = CoreDriver::request(2, prompt, 1);
  const auto external = [&](const std::vector<TierMatch>& found) {
    connector.found = found;
    const CacheProbe probe = d.core->probe(asked).value();
    EXPECT_EQ(probe.num_tokens, 21U);
    EXPECT_EQ(probe.num_local_tokens, 8U);
    EXPECT_TRUE(probe.is_external_known);
    EXPECT_EQ(connector.local, 8U);
    std::vector<std::uint32_t> numbers;
    numbers.reserve(probe.external.size());
    for (const TierMatch& match : probe.external) numbers.push_back(match.num_tokens);
    return numbers;
  };
  using Numbers = std::vector<std::uint32_t>;
  for (const bool load_async : {false, true}) {
    EXPECT_EQ(external({{.tier = 1, .num_tokens = 4, .load_async = load_async}}), Numbers{4});
    EXPECT_EQ(external({{.tier = 1, .num_tokens = 12, .load_async = load_async}}), Numbers{12});
    EXPECT_EQ(external({{.tier = 1, .num_tokens = 13, .load_async = load_async}}), Numbers{load_async ? 13U : 12U});
    EXPECT_EQ(external({{.tier = 1, .num_tokens = 99, .load_async = load_async}}), Numbers{load_async ? 13U : 12U});
    EXPECT_EQ(external({{.tier = 1, .num_tokens = 8, .load_async = load_async}, {.tier = 2, .num_tokens = 9, .load_async = load_async}}),
              (Numbers{8, load_async ? 5U : 4U}));
    EXPECT_EQ(external({{.tier = 1, .num_tokens = 99, .load_async = true}, {.tier = 2, .num_tokens = 9, .load_async = load_async}}),
              (Numbers{13, 0}));
  }
}

TEST(Probe, FindsNothingWithoutAPrefixCache) {
  for (const bool caches : {true, false}) {
    CoreConfig config = sync_config();
    config.prefix_cache.enable_prefix_caching = caches;
    CoreDriver d(config);
    const Tokens prompt = CoreDriver::prompt(1, 9);
    d.add(CoreDriver::request(1, prompt, 1));
    d.step();
    const CacheProbe probe = d.core->probe(CoreDriver::request(2, prompt, 1)).value();
    EXPECT_EQ(probe.num_tokens, 9U);
    EXPECT_EQ(probe.num_local_tokens, caches ? 8U : 0U);
    EXPECT_TRUE(probe.external.empty());
  }
}

}  // namespace
}  // namespace quire::test
