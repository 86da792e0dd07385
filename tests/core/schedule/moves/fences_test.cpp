// Which open transfers a plan waits for: those whose blocks it writes to, and no other; and what a prompt would find, asked for.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "quire/connector.h"
#include "quire/watch.h"

namespace quire::test {
namespace {

// Begins a store or a load of some blocks with the next plan.
class OneTransfer final : public Connector {
 public:
  std::vector<BlockId> blocks;  // empty: begins none
  RequestId request;
  TransferDirection direction = TransferDirection::store;
  std::optional<TransferId> id;
  std::vector<TierMatch> found;

  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/) override {
    return {.num_tokens = 0, .load_async = false};
  }
  bool peek(const RequestView& /*request*/, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override {
    local = num_local_tokens;
    matches = found;
    return true;
  }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t /*num_external_tokens*/) override {}
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    if (blocks.empty()) return;
    const std::vector<std::uint64_t> places(blocks.size(), 0);
    id = transfers.add({.id = {}, .request = request, .direction = direction, .blocks = blocks, .places = places});
    blocks.clear();
  }
  void step_output() override {}
  bool reset() override { return true; }

  std::uint32_t local = 0;
};

Ids fences_of(const StepPlan& plan) {
  Ids ids;
  ids.reserve(plan.fences.size());
  for (const TransferId id : plan.fences) ids.push_back(id.value);
  return ids;
}

TEST(Fences, WhoFindsBlocksThatAreStoredWaitsForNothingAndWhoWritesToThemDoes) {
  OneTransfer connector;
  CoreDriver d(sync_config(8), {.connector = &connector});
  const Tokens prompt = CoreDriver::prompt(1, 9);
  d.add(CoreDriver::request(1, prompt, 2));
  d.step();
  const std::vector<BlockId> stored = d.blocks(1);
  ASSERT_EQ(stored.size(), 3U);
  connector.request = RequestId{1};
  connector.blocks = {stored[0], stored[1]};
  EXPECT_TRUE(fences_of(d.plan()).empty());
  ASSERT_TRUE(connector.id.has_value());
  d.apply();
  ASSERT_FALSE(d.known(1));
  WatchFrame frame;
  d.core->watch(frame);
  for (std::size_t i = 0; i < stored.size(); ++i)
    EXPECT_EQ((frame.blocks[stored[i].value].flags & WatchedBlock::kStoring) != 0, i < 2) << i;
  // It begins with a table that has them, and writes behind them.
  d.add(CoreDriver::request(2, prompt, 1));
  const StepPlan& found = d.plan();
  ASSERT_EQ(found.scheduled.size(), 1U);
  EXPECT_EQ(found.scheduled[0].num_computed_tokens, 8U);
  EXPECT_EQ(d.blocks(2)[1], stored[1]);
  EXPECT_TRUE(fences_of(found).empty());
  d.apply();
  d.add(3, 26, 2);  // all seven
  EXPECT_EQ(fences_of(d.plan()), Ids{connector.id.value_or(TransferId{}).value});
  d.apply();
  EXPECT_TRUE(fences_of(d.plan()).empty()) << "once";
  d.apply();
}

TEST(Probe, OfTiersATokenIsLeftToComputeUnlessAllAreAwaited) {
  OneTransfer connector;
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

TEST(Probe, WithoutAPrefixCacheNothingIsThere) {
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
