// Tests which blocks the offloading connector stores and loads, where and when, and which configurations it accepts.
#include "core/connect/offload_connector.h"

#include <gtest/gtest.h>

#include "core/connect/grouped_config.h"
#include "core/connect/lasting_places.h"
#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

using Blocks = std::vector<std::uint32_t>;
using Places = std::vector<std::uint64_t>;

std::string field_of(const OffloadConnectorOptions& options, const CoreConfig& config = sync_config()) {
  const auto created = OffloadConnector::create(options, config, 1);
  return created ? "" : created.error().field;
}

TEST(OffloadConnector, ChecksItsOptions) {
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8}), "");
  EXPECT_EQ(field_of({}), "cpu_bytes_to_use");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8, .block_size = 6}), "block_size");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8, .eviction_policy = "fifo"}), "eviction_policy");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8, .store_threshold = 2, .max_tracker_size = 0}), "max_tracked_keys");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = std::uint64_t{1} << 40}), "num_slots");
  LastingPlaces places;
  const auto of_names = OffloadConnector::create({.cpu_bytes_to_use = 8, .block_size = 8}, sync_config(), 1, &places);
  EXPECT_EQ(of_names.error().field, "block_size");
  const auto without_bytes = OffloadConnector::create({.cpu_bytes_to_use = 8}, sync_config(), 0);
  EXPECT_EQ(without_bytes.error().field, "bytes_per_block");
}

TEST(OffloadConnector, RefusesACacheThatCannotBeOffloaded) {
  CoreConfig config = sync_config();
  ChunkedLocalSpec chunks;
  chunks.block_size = kBlockSize;
  chunks.attention_chunk_size = 8;
  config.kv.groups[0].spec = chunks;
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8}, config), "kv.groups");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8}, grouped_config({0, 9})), "");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8, .block_size = 2 * kBlockSize}, grouped_config({0, 9})), "block_size");
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8, .block_size = 2 * kBlockSize}, grouped_config({9})), "block_size");
  config = sync_config();
  config.parallel.dcp_world_size = 2;
  EXPECT_EQ(field_of({.cpu_bytes_to_use = 8}, config), "parallel");
}

TEST(OffloadConnector, StoresComputedBlocksAndLoadsThemBack) {
  OffloadDriver o;
  o.add(1, 1, 10, 3);
  o.run();
  EXPECT_EQ(o.num_kept(), 3U) << "two blocks of the prompt and one that ends in outputs";
  o.forget_cached();
  o.add(2, 1, 10, 3);
  EXPECT_TRUE(o.plan().scheduled.empty()) << "request 2 waits for its load";
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].direction, TransferDirection::load);
  EXPECT_EQ(o.begun[0].places, (Places{0, 1}));
  o.apply();
  EXPECT_EQ(o.plan().scheduled[0].num_computed_tokens, 8U);
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 3U) << "no block is stored twice";
  EXPECT_EQ(o.connector->counters().num_stored, 3U);
  EXPECT_EQ(o.connector->counters().num_loaded, 2U);
}

TEST(OffloadConnector, BeginsAStoreWithThePlanAfterTheOneThatFillsTheBlock) {
  OffloadDriver o;
  o.add(1, 1, 10, 8);
  EXPECT_TRUE(o.plan().transfers.empty());
  const std::vector<BlockId> blocks = o.d.blocks(1);
  o.apply();
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].blocks, (Blocks{blocks[0].value, blocks[1].value}));
  o.apply();
  EXPECT_EQ(o.connector->ledger().ref_count(o.d.known(1) ? o.key(1, 0) : OffloadKey{}), -1)
      << "the block counts as stored when the request has ended";
  o.run();
}

// An offloaded block consists of two cache blocks, and the first of them is cached already.
TEST(OffloadConnector, BeginsALoadInTheMiddleOfAnOffloadedBlock) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .block_size = 2 * kBlockSize});
  o.add(1, 1, 17, 1);
  o.run();
  EXPECT_EQ(o.num_kept(), 2U);
  o.forget_cached();
  o.add(2, 1, 5, 1);
  o.run();
  o.add(3, 1, 17, 1);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].places, (Places{1, 2, 3}));
  const std::vector<BlockId> blocks = o.d.blocks(3);
  EXPECT_EQ(o.begun[0].blocks, (Blocks{blocks[1].value, blocks[2].value, blocks[3].value}));
  o.apply();
  o.run();
}

TEST(OffloadConnector, FindsABlockThatIsBeingLoadedOnlyWhenLoadsAreJoined) {
  for (const bool join : {false, true}) {
    OffloadDriver o({.cpu_bytes_to_use = 32, .join_loads = join});
    o.add(1, 1, 10, 1);
    o.run();
    o.forget_cached();
    o.add(2, 1, 10, 1);
    o.add(3, 1, 10, 1);
    o.plan();
    EXPECT_EQ(o.begun.size(), join ? 2U : 1U);
    EXPECT_EQ(o.d.view(3).status, join ? RequestStatus::waiting_for_remote_kv : RequestStatus::waiting);
    if (join) EXPECT_EQ(o.begun[0].places, o.begun[1].places);
    o.apply();
    o.run();
  }
}

TEST(OffloadConnector, StoresFindsAndLoadsAMillionKeys) {
  constexpr std::uint32_t kTokens = 100'000, kRequests = 10;
  CoreConfig config = sync_config(kTokens + 2);
  FullAttentionSpec spec;
  spec.block_size = config.block_size = 1;
  config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
  config.scheduler.max_num_batched_tokens = kTokens;
  config.scheduler.max_model_len = kTokens + 1;
  const auto connector = OffloadConnector::create({.cpu_bytes_to_use = 1'000'000}, config, 1).value();
  const auto core = Core::create(config, {.connector = connector.get()}).value();
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      Tokens prompt(kTokens, static_cast<TokenId>(i));
      ASSERT_TRUE(core->add({.id = RequestId{round * kRequests + i}, .prompt = prompt, .max_tokens = 1}));
      while (core->has_work() || core->counters().num_awaiting_transfers > 0) {
        const StepPlan& plan = core->schedule();
        std::vector<SampledToken> sampled;
        for (const ScheduledRequest& s : plan.scheduled)
          if (s.samples) sampled.push_back({s.id, 7});
        std::vector<TransferCompletion> over;
        for (const Transfer& transfer : plan.transfers) over.push_back({.transfer = transfer.id});
        ASSERT_TRUE(core->apply({.step = plan.step, .sampled = sampled, .completions = over}));
      }
      ASSERT_TRUE(core->reset_prefix_cache().value());
    }
    EXPECT_EQ(connector->ledger().num_free(), 0U);
    EXPECT_EQ(connector->counters().num_loaded, round * 1'000'000U);
  }
  EXPECT_EQ(connector->counters().num_stored, 1'000'000U);
  EXPECT_EQ(connector->num_tracked(), 0U);
  EXPECT_TRUE(connector->reset());
  EXPECT_EQ(connector->ledger().num_free(), 1'000'000U);
}

// A persistent tier assigns the slot numbers in transfers and restores its blocks from an earlier run.
TEST(OffloadConnector, UsesTheSlotNumbersOfTheTierInTransfers) {
  LastingPlaces places;
  OffloadDriver o({.cpu_bytes_to_use = 4}, recompute_config(), &places);
  for (std::uint32_t slot = 4; slot-- > 0;) o.connector->restore(OffloadSlot{slot}, nullptr);
  const auto store_and_load = [&](std::uint64_t id, std::uint64_t prompt, std::uint32_t generation) {
    o.add(id, prompt, 9, 1);
    o.run();
    o.forget_cached();
    o.add(id + 1, prompt, 9, 1);
    o.plan();
    ASSERT_EQ(o.begun.size(), 1U);
    EXPECT_EQ(o.begun[0].direction, TransferDirection::load);
    Places named;
    for (const std::uint64_t number : o.begun[0].places) {
      EXPECT_EQ(number >> 32U, generation);
      EXPECT_TRUE(places.is_current(number));
      named.push_back(static_cast<std::uint32_t>(number));
    }
    std::ranges::sort(named);
    EXPECT_EQ(named, prompt == 1 ? (Places{0, 1}) : (Places{2, 3}));
    o.apply();
    o.run();
    o.forget_cached();
  };
  store_and_load(1, 1, 1);
  store_and_load(3, 2, 1);
  store_and_load(5, 1, 1);
  o.add(7, 3, 9, 1);  // takes the slots of the second prompt
  o.run();
  EXPECT_EQ(places.generation(2), 2U);
  EXPECT_EQ(places.generation(0), 1U);
}

TEST(OffloadConnector, LoadsBlocksThatWereRestored) {
  std::vector<OffloadKey> keys;
  {
    OffloadDriver before;
    before.add(1, 1, 13, 1);
    before.plan();
    for (std::size_t i = 0; i < 3; ++i) keys.push_back(before.key(1, i));
    before.apply();
    before.run();
  }
  for (const bool is_reset : {false, true}) {
    LastingPlaces places;
    OffloadDriver o({.cpu_bytes_to_use = 8}, recompute_config(), &places);
    o.connector->restore(OffloadSlot{6}, &keys[0]);
    o.connector->restore(OffloadSlot{1}, &keys[1]);
    if (is_reset) o.d.core->reset_connector_cache();
    o.connector->restore(OffloadSlot{3}, &keys[2]);
    o.connector->restore(OffloadSlot{4}, &keys[0]);
    EXPECT_EQ(o.num_kept(), is_reset ? 4U : 7U) << "four slots are not restored yet";
    o.add(1, 1, 13, 1);
    o.plan();
    ASSERT_EQ(o.begun.size(), is_reset ? 0U : 1U);
    if (is_reset) continue;
    EXPECT_EQ(o.begun[0].places, (Places{places.number(6), places.number(1), places.number(3)}));
    EXPECT_EQ(places.name(1), keys[1]);
    EXPECT_EQ(places.generation(4), 0U);
    o.apply();
    o.run();
  }
}

// Two tiers hold blocks of one core. The second tier gets blocks of the first.
TEST(OffloadConnector, MovesABlockFromOneTierToAnother) {
  LastingPlaces upper_places, lower_places;
  OffloadDriver upper({.cpu_bytes_to_use = 2}, sync_config(), &upper_places);
  const auto lower = OffloadConnector::create({.cpu_bytes_to_use = 1}, sync_config(), 1, &lower_places).value();
  for (std::uint32_t slot = 0; slot < 2; ++slot) upper.connector->restore(OffloadSlot{slot}, nullptr);
  lower->restore(OffloadSlot{0}, nullptr);
  upper.add(1, 1, 9, 1);
  upper.run();
  std::vector<OffloadKey> next;
  upper.connector->append_next_victims(9, next);
  ASSERT_EQ(next.size(), 2U);
  EXPECT_FALSE(lower->hold(next[0])) << "the block is not in the tier";
  EXPECT_TRUE(lower->adopt(next[0]));
  EXPECT_FALSE(lower->adopt(next[0])) << "the block is being moved";
  EXPECT_FALSE(lower->adopt(next[1])) << "the tier has no free slot";
  EXPECT_TRUE(upper.connector->hold(next[0]));
  upper.add(2, 2, 9, 1);
  upper.run();
  EXPECT_TRUE(upper.connector->ledger().contains(next[0])) << "a held block is not evicted";
  upper.connector->release(next[0]);
  lower->adopted(next[0], true);
  EXPECT_TRUE(lower->hold(next[0]));
  lower->release(next[0]);
  EXPECT_TRUE(lower->reset());
  EXPECT_EQ(lower->ledger().num_free(), 1U);
}

TEST(OffloadConnector, DoesNotKeepABlockWhenItsMoveFailsOrTheTierIsReset) {
  LastingPlaces places;
  const auto lower = OffloadConnector::create({.cpu_bytes_to_use = 2}, sync_config(), 1, &places).value();
  for (std::uint32_t slot = 0; slot < 2; ++slot) lower->restore(OffloadSlot{slot}, nullptr);
  OffloadKey one, other;
  other.hash[0] = 1;
  lower->adopt(one);
  lower->adopted(one, false);
  EXPECT_EQ(lower->ledger().num_free(), 2U);
  lower->adopt(one);
  lower->adopt(other);
  lower->adopted(other, true);
  EXPECT_TRUE(lower->hold(other));
  lower->reset();
  EXPECT_FALSE(lower->hold(other)) << "the block is removed when it is released";
  lower->release(other);
  lower->adopted(one, true);
  EXPECT_EQ(lower->ledger().num_free(), 2U);
  EXPECT_EQ(lower->num_tracked(), 0U);
}

// The connector plans a store of blocks that are then invalidated.
TEST(OffloadConnector, DoesNotStoreInvalidatedBlocks) {
  for (const std::uint32_t max_storing_blocks : {0U, 3U}) {
    OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = max_storing_blocks});
    o.add(1, 1, 12, 2);
    o.plan();
    EXPECT_EQ(o.connector->num_tracked(), 2U) << "a store begins with the next plan";
    o.connector->invalidated(o.d.view(1), 4);
    EXPECT_EQ(o.connector->counters().num_failed_stores, 3U);
    o.apply();
    o.plan();
    ASSERT_EQ(o.begun.size(), 0U);
    o.apply();
    EXPECT_EQ(o.connector->counters().num_deferred_by_limit, 0U) << "none of the blocks is in transfer";
    o.run();
    EXPECT_EQ(o.num_kept(), 2U) << "stores are planned again from the first invalidated block on";
  }
}

TEST(OffloadConnector, FindsABlockWhenItsStoreEnds) {
  for (const bool hit_after_store_completes : {false, true}) {
    OffloadDriver o({.cpu_bytes_to_use = 8, .hit_after_store_completes = hit_after_store_completes});
    o.add(1, 1, 9, 6);
    o.plan();
    const OffloadKey key = o.key(1, 0);
    o.apply();
    o.plan();
    ASSERT_EQ(o.begun.size(), 1U);
    EXPECT_EQ(o.connector->ledger().ref_count(key), -1);
    o.apply();
    EXPECT_EQ(o.connector->ledger().ref_count(key), hit_after_store_completes ? 0 : -1) << "its request continues";
    o.run();
    EXPECT_EQ(o.connector->ledger().ref_count(key), 0);
  }
}

}  // namespace
}  // namespace quire::test
