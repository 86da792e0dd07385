// Tests the offloading connector with several cache groups and with sliding windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "core/connect/composite_connector.h"
#include "core/connect/grouped_config.h"
#include "core/connect/lasting_places.h"
#include "core/connect/offload_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// Returns the blocks of the group's transfers in the newest plan. The result is empty if there is no transfer.
std::vector<std::uint32_t> moved_blocks(const OffloadDriver& o, TransferDirection direction, std::uint32_t group) {
  std::vector<std::uint32_t> blocks;
  for (const Begun& begun : o.begun)
    if (begun.direction == direction && begun.group == group) blocks.insert(blocks.end(), begun.blocks.begin(), begun.blocks.end());
  return blocks;
}

std::vector<std::uint32_t> blocks_of(const OffloadDriver& o, std::uint64_t id, std::uint32_t group, std::size_t first, std::size_t end) {
  std::vector<std::uint32_t> blocks;
  for (std::size_t i = first; i < end; ++i) blocks.push_back(o.d.core->blocks(RequestId{id}, group)[i].value);
  return blocks;
}

// A tier that has all blocks of prompt 1, in all groups.
struct WarmTier {
  WarmTier(const CoreConfig& config, std::uint32_t num_blocks) : o({.cpu_bytes_to_use = 64}, config, &places) {
    OffloadDriver before({.cpu_bytes_to_use = 64}, config);
    before.add(1, 1, num_blocks * kBlockSize + 1, 1);
    std::uint32_t slot = 0;
    for (std::uint32_t i = 0; i < num_blocks; ++i) {
      for (std::uint32_t group = 0; group < config.kv.groups.size(); ++group) {
        const OffloadKey key = before.key(1, i, group);
        o.connector->restore(OffloadSlot{slot++}, &key);
      }
    }
  }
  LastingPlaces places;
  OffloadDriver o;
};

TEST(OffloadGroups, EachGroupStoresAndLoadsWhatItsLayersNeed) {
  OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({0, 5, 9}));
  o.add(1, 1, 22, 1);
  o.plan();
  const std::vector<std::uint32_t> full = blocks_of(o, 1, 0, 0, 5), window = blocks_of(o, 1, 1, 0, 5);
  o.apply();
  o.plan();
  EXPECT_EQ(o.begun.size(), 3U);
  EXPECT_EQ(moved_blocks(o, TransferDirection::store, 0), full);
  EXPECT_EQ(moved_blocks(o, TransferDirection::store, 1), window)
      << "also blocks that the window has passed: another prompt may diverge there";
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 15U);
  o.forget_cached();
  o.add(2, 1, 22, 1);
  o.plan();
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 0), blocks_of(o, 2, 0, 0, 5));
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 1), blocks_of(o, 2, 1, 4, 5)) << "tokens 16 to 19";
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 2), blocks_of(o, 2, 2, 3, 5)) << "tokens 12 to 19";
  EXPECT_EQ(o.d.core->blocks(RequestId{2}, 2)[2], kNullBlock);
  o.apply();
  EXPECT_EQ(o.plan().scheduled[0].num_computed_tokens, 20U);
  o.apply();
  o.run();
  EXPECT_EQ(o.connector->counters().num_loaded_tokens, 20U);
  EXPECT_EQ(o.num_kept(), 15U) << "nothing is stored twice";
}

// The last token is computed again. It attends to a token that the next token does not attend to.
TEST(OffloadGroups, ComputesTheLastBlockOfAPromptWhenALayerHasAWindow) {
  for (const std::uint32_t window : {0U, 5U}) {
    OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({window}));
    o.add(1, 1, 12, 1);
    o.run();
    o.forget_cached();
    o.add(2, 1, 12, 1);
    o.plan();
    o.apply();
    EXPECT_EQ(o.plan().scheduled[0].num_computed_tokens, window == 0 ? 11U : 8U);
    o.apply();
    o.run();
  }
}

TEST(OffloadGroups, DoesNotLoadBlocksThatAreCached) {
  OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({0, 9}));
  o.add(1, 1, 22, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 13, 1);  // three blocks of each group are cached again, up to the window's reach
  o.run();
  o.add(3, 1, 22, 1);
  o.plan();
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 0), blocks_of(o, 3, 0, 3, 5));
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 1), blocks_of(o, 3, 1, 3, 5));
  o.apply();
  o.run();
}

// A local hit has null blocks that a window has passed.
TEST(OffloadGroups, DoesNotStoreBlocksThatAWindowHasPassed) {
  OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({0, 5}));
  o.add(1, 1, 22, 1);
  o.run();
  o.d.core->reset_connector_cache();
  EXPECT_EQ(o.num_kept(), 0U);
  o.add(2, 1, 22, 1);
  o.run();
  EXPECT_EQ(o.num_kept(), 6U) << "five blocks of the full group and one of the window group";
  o.forget_cached();
  o.add(3, 1, 22, 1);
  o.plan();
  EXPECT_EQ(o.begun.size(), 2U) << "the stored blocks suffice for the same prompt";
  o.apply();
  o.run();
  o.forget_cached();
  o.add(4, 1, 14, 1);
  EXPECT_EQ(o.plan().scheduled.size(), 1U) << "they do not suffice for a prompt that ends before the window";
  o.apply();
  o.run();
}

// A store begins with the plan after the one that fills the block. If the window passes it in that very plan, and it is written to again,
// the plan waits for the store.
TEST(OffloadGroups, FencesTheNextUserOfABlockThatTheWindowPassesDuringItsStore) {
  CoreConfig config = grouped_config({5}, 4);
  config.scheduler.max_num_batched_tokens = 8;
  config.scheduler.reserve_full_isl = false;
  OffloadDriver o({.cpu_bytes_to_use = 64}, config);
  o.add(1, 1, 24, 1);
  o.plan();
  const std::vector<std::uint32_t> first = blocks_of(o, 1, 0, 0, 2);
  o.apply();
  const StepPlan& plan = o.plan();
  EXPECT_EQ(moved_blocks(o, TransferDirection::store, 0), first);
  EXPECT_EQ(o.d.core->blocks(RequestId{1}, 0)[0], kNullBlock);
  EXPECT_EQ(o.d.core->blocks(RequestId{1}, 0)[3].value, first[0]);
  ASSERT_EQ(plan.fences.size(), 1U);
  EXPECT_EQ(plan.fences[0], o.begun.at(0).id);
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 6U);
}

TEST(OffloadGroups, LoadsTheRemainingBlocksAfterALoadFails) {
  OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({0, 9}));
  o.add(1, 1, 22, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 22, 1);
  o.plan();
  ASSERT_EQ(o.begun.size(), 2U);
  const OffloadKey bad = o.key(2, 3, 1);
  const BlockId bad_blocks[] = {o.d.core->blocks(RequestId{2}, 1)[3]};
  const TransferCompletion window[] = {{.transfer = o.begun[1].id, .outcome = TransferOutcome::failed, .bad_blocks = bad_blocks}};
  o.open = {o.begun[0].id};
  o.d.apply({}, {.completions = window});
  EXPECT_FALSE(o.connector->ledger().contains(bad));
  EXPECT_EQ(o.d.view(2).status, RequestStatus::waiting_for_remote_kv) << "the other load is not over";
  EXPECT_TRUE(o.plan().scheduled.empty());
  o.apply();
  EXPECT_EQ(o.d.view(2).status, RequestStatus::waiting);
  EXPECT_TRUE(o.d.core->all_blocks_free());
  o.plan();
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 0), blocks_of(o, 2, 0, 0, 3)) << "up to the block that failed to load";
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 1), blocks_of(o, 2, 1, 1, 3));
  o.apply();
  EXPECT_EQ(o.plan().scheduled[0].num_computed_tokens, 12U);
  o.apply();
  o.run();
  EXPECT_TRUE(o.connector->ledger().contains(bad)) << "the block is stored again";
  EXPECT_EQ(o.connector->counters().num_loaded_tokens, 12U);
}

TEST(OffloadGroups, LoadsTheRemainingBlocksAfterALoadFailsWithOneWindowGroup) {
  OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({9}));
  o.add(1, 1, 22, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 22, 1);
  o.plan();
  const BlockId bad[] = {o.d.core->blocks(RequestId{2}, 0)[4]};
  o.apply(TransferOutcome::failed, bad);
  o.plan();
  EXPECT_EQ(moved_blocks(o, TransferDirection::load, 0), blocks_of(o, 2, 0, 2, 4))
      << "the window of the shorter match, not the rest of the first one";
  o.apply(TransferOutcome::failed);
  EXPECT_TRUE(o.d.core->all_blocks_free());
  o.run();
}

TEST(OffloadGroups, EndsTheRequestAfterALoadFailsUnderTheFailPolicy) {
  CoreConfig config = grouped_config({0, 9});
  config.kv_load_failure = KvLoadFailurePolicy::fail;
  OffloadDriver o({.cpu_bytes_to_use = 64}, config);
  o.add(1, 1, 22, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 22, 1);
  o.plan();
  const TransferCompletion failed[] = {{.transfer = o.begun[1].id, .outcome = TransferOutcome::failed}};
  o.open = {o.begun[0].id};
  const Outcome outcome = o.d.apply({}, {.completions = failed});
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_EQ(outcome.updates[0].status, RequestStatus::finished_error);
  EXPECT_FALSE(o.d.core->all_blocks_free()) << "the other load still writes to some blocks";
  o.run();
}

// One transfer runs at a time. The request continues when both of its loads have ended.
TEST(OffloadGroups, ContinuesARequestWhenAllItsLoadsEnd) {
  CoreConfig config = grouped_config({0, 9});
  config.limits.max_open_transfers = 1;
  WarmTier tier(config, 5);
  OffloadDriver& o = tier.o;
  o.add(2, 1, 22, 1);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.connector->num_tracked(), 3U) << "the request, the load that has begun and the one that waits";
  o.apply();
  EXPECT_TRUE(o.plan().scheduled.empty()) << "the window's blocks are not loaded";
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].group, 1U);
  o.apply();
  EXPECT_EQ(o.plan().scheduled[0].num_computed_tokens, 20U);
  o.apply();
  o.run();
}

// The end of a request frees the blocks that its windows have passed. A load that begins later would write to blocks of other requests.
TEST(OffloadGroups, DropsALoadThatHasNotBegunWhenItsRequestEnds) {
  CoreConfig config = grouped_config({0, 9});
  config.limits.max_open_transfers = 1;
  WarmTier tier(config, 3);
  OffloadDriver& o = tier.o;
  o.add(2, 1, 40, 1);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  const OffloadKey key = o.key(2, 2, 1);
  EXPECT_EQ(o.connector->ledger().ref_count(key), 1);
  o.d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  o.apply();
  o.plan();
  EXPECT_TRUE(o.begun.empty());
  EXPECT_EQ(o.connector->ledger().ref_count(key), 0);
  EXPECT_EQ(o.connector->num_tracked(), 0U) << "the request has no transfer in flight";
  o.apply();
  o.run();
}

// One transfer may be open, and the pool has no spare block. While the store waits, the window frees its first block. The same request gets
// that block again for its newest tokens.
TEST(OffloadGroups, DropsAWaitingStoreWhenItsBlockIsReusedAtAnotherPosition) {
  CoreConfig config = grouped_config({9}, 5);
  config.limits.max_open_transfers = 1;
  OffloadDriver o({.cpu_bytes_to_use = 32}, config);
  o.add(1, 1, 4, 1);
  o.plan();
  o.apply();
  o.add(2, 2, 12, 6);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U) << "the store of the first request";
  const BlockId first = o.d.core->blocks(RequestId{2}, 0)[0];
  o.apply_without_ends();
  o.plan();
  EXPECT_TRUE(o.begun.empty()) << "one more transfer would exceed the limit";
  ASSERT_EQ(o.d.core->blocks(RequestId{2}, 0)[3], first) << "the test covers too few cases";
  const OffloadKey key = o.key(2, 0);
  o.apply();
  o.plan();
  EXPECT_TRUE(o.begun.empty());
  EXPECT_EQ(o.connector->ledger().ref_count(key), std::nullopt);
  o.apply();
  o.run();
}

TEST(OffloadGroups, CompositeSupportsGroupsAndStatesWhenAllMembersDo) {
  const std::shared_ptr<Connector> one = OffloadConnector::create({.cpu_bytes_to_use = 8}, grouped_config({0, 9}), 1).value();
  const std::shared_ptr<Connector> other = OffloadConnector::create({.cpu_bytes_to_use = 8}, grouped_config({0, 9}), 1).value();
  const CompositeConnector both({{one, 0}, {other, 1}}), mixed({{one, 0}, {std::make_shared<ScriptedConnector>(), 1}});
  EXPECT_TRUE(both.supports_groups() && both.supports_states());
  EXPECT_FALSE(mixed.supports_groups() || mixed.supports_states());
}

// The tier holds random blocks. The connector finds as many tokens as a naive search.
TEST(OffloadGroups, FindsAsManyTokensAsANaiveSearch) {
  constexpr std::uint32_t kTokens = 38;
  std::uint32_t num_found = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    const std::vector<std::uint32_t> windows = random.chance(0.5)   ? std::vector{0U, static_cast<std::uint32_t>(random.between(1, 14))}
                                               : random.chance(0.5) ? std::vector{static_cast<std::uint32_t>(random.between(2, 14))}
                                                                    : std::vector{0U, 5U, 9U};
    LastingPlaces places;
    const auto connector = OffloadConnector::create({.cpu_bytes_to_use = 64}, grouped_config(windows), 1, &places).value();
    const std::vector<TokenId> tokens(random.between(1, kTokens));
    std::vector<std::uint8_t> names(tokens.size() / kBlockSize * 32);
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = static_cast<std::uint8_t>(i / 32 + (i % 32 == 0 ? 7 : 0));
    std::set<std::pair<std::uint32_t, std::uint32_t>> there;  // block, group
    std::uint32_t slot = 0;
    for (std::uint32_t block = 0; block < tokens.size() / kBlockSize; ++block) {
      for (std::uint32_t group = 0; group < windows.size(); ++group) {
        if (!random.chance(0.9)) continue;
        OffloadKey key{.hash = {}, .group = group};
        std::copy_n(names.begin() + block * 32, 32, key.hash.begin());
        connector->restore(OffloadSlot{slot++}, &key);
        there.emplace(block, group);
      }
    }
    RequestView view;
    view.id = RequestId{seed};
    view.tokens = tokens;
    view.block_hashes = names;
    const std::uint64_t num_local_blocks = random.chance(0.5) ? 0 : random.below((tokens.size() - 1) / kBlockSize + 1);
    const auto num_local = static_cast<std::uint32_t>(num_local_blocks * kBlockSize);
    std::uint32_t wanted = num_local;
    for (std::uint32_t end = num_local; end < tokens.size(); end += kBlockSize) {
      bool fits = true;
      for (std::uint32_t group = 0; group < windows.size(); ++group)
        for (std::uint32_t token = num_local; token < end; ++token)
          if (windows[group] == 0 || token + windows[group] > end) fits &= there.contains({token / kBlockSize, group});
      if (fits) wanted = end;
    }
    ASSERT_EQ(connector->match(view, num_local).num_tokens, wanted - num_local) << "seed " << seed;
    num_found += wanted > num_local ? 1 : 0;
  }
  EXPECT_GT(num_found, 200U) << "the test covers too few cases";
}

}  // namespace
}  // namespace quire::test
