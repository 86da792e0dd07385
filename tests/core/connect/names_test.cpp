// Tests the offload keys of a request's blocks, and tiers that are filled from outside.
#include <gtest/gtest.h>

#include "core/connect/grouped_config.h"
#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

std::vector<OffloadKey> names_of(const OffloadDriver& o, std::uint64_t id, std::vector<OffloadKey> before = {}) {
  o.connector->append_block_keys(o.d.view(id), before);
  return before;
}

TEST(OffloadNames, CoverAllWholeBlocksInEachGroup) {
  OffloadDriver o({.cpu_bytes_to_use = 64}, grouped_config({0, 9}));
  for (const std::uint32_t num_tokens : {1U, 3U, 4U, 8U, 11U}) {
    o.add(num_tokens, num_tokens, num_tokens, 1);
    std::vector<OffloadKey> expected;
    for (std::size_t block = 0; block < num_tokens / kBlockSize; ++block)
      for (const std::uint32_t group : {0U, 1U}) expected.push_back(o.key(num_tokens, block, group));
    EXPECT_EQ(names_of(o, num_tokens), expected) << num_tokens;
  }
}

TEST(OffloadNames, AreAppended) {
  OffloadDriver o;
  o.add(1, 1, 9, 1);
  const OffloadKey other{.hash = {}, .group = 7};
  EXPECT_EQ(names_of(o, 1, {other}), (std::vector<OffloadKey>{other, o.key(1, 0), o.key(1, 1)}));
}

TEST(OffloadNames, MissingKeysBeginAfterTheCachedTokens) {
  for (const bool has_window : {false, true}) {
    OffloadDriver o({.cpu_bytes_to_use = 64},
                    grouped_config(has_window ? std::vector<std::uint32_t>{0, 9} : std::vector<std::uint32_t>{0}));
    o.add(1, 1, 14, 1);
    o.add(2, 2, 12, 1);
    const auto wanted = [&](std::uint64_t id, std::uint32_t num_local) {
      std::vector<OffloadKey> keys = {OffloadKey{.hash = {}, .group = 7}};
      o.connector->append_match_keys(o.d.view(id), num_local, keys);
      return keys;
    };
    const auto names = [&](std::uint64_t id, std::size_t first, std::size_t last) {
      std::vector<OffloadKey> keys = {OffloadKey{.hash = {}, .group = 7}};
      for (std::size_t i = first; i < last; ++i)
        for (std::uint32_t group = 0; group < (has_window ? 2U : 1U); ++group) keys.push_back(o.key(id, i, group));
      return keys;
    };
    EXPECT_EQ(wanted(1, 0), names(1, 0, 3));
    EXPECT_EQ(wanted(1, 3), names(1, 0, 3)) << "a partial block does not count";
    EXPECT_EQ(wanted(1, 4), names(1, 1, 3));
    EXPECT_EQ(wanted(1, 8), names(1, 2, 3));
    EXPECT_EQ(wanted(1, 12), names(1, 3, 3));
    EXPECT_EQ(wanted(1, 13), names(1, 3, 3));
    EXPECT_EQ(wanted(2, 12), names(2, 3, 3));
    EXPECT_EQ(wanted(2, 4), names(2, 1, has_window ? 2 : 3)) << "the last block of a prompt is computed when there is a window";
  }
}

// Collects the keys that were evicted and dropped.
class LeftPlaces final : public TierSlots {
 public:
  std::uint64_t assign(std::uint64_t place, const OffloadKey& /*key*/) override {
    ++num_assigned;
    return place;
  }
  void left(const OffloadKey& key) override { gone.push_back(key); }
  void dropped(const OffloadKey& key) override { not_to_be_given.push_back(key); }
  std::vector<OffloadKey> gone, not_to_be_given;
  std::uint32_t num_assigned = 0;
};

OffloadKey number(std::uint8_t value) {
  OffloadKey key{.hash = {}, .group = 0};
  key.hash[0] = value;
  return key;
}

TEST(OffloadOutside, AddsAKeyOnAPeerHitAndRemovesItOnAPeerMiss) {
  LeftPlaces places;
  OffloadDriver o({.cpu_bytes_to_use = 2}, sync_config(), &places);
  OffloadConnector& tier = *o.connector;
  for (const std::uint32_t slot : {0U, 1U}) tier.restore(OffloadSlot{slot}, nullptr);
  const auto has = [&](std::uint8_t value) { return tier.ledger().ref_count(number(value)) == 0; };
  tier.on_query_hit(number(1));
  tier.on_query_hit(number(1));
  EXPECT_TRUE(has(1));
  EXPECT_EQ(o.num_kept(), 1U);
  EXPECT_EQ(places.num_assigned, 1U) << "the key was present already";
  tier.on_query_hit(number(2));
  EXPECT_TRUE(places.gone.empty());
  tier.on_query_hit(number(3));
  EXPECT_EQ(places.gone, std::vector<OffloadKey>{number(1)}) << "the oldest key is evicted";
  EXPECT_TRUE(has(2) && has(3) && !has(1));
  const auto held = tier.hold(number(2));
  ASSERT_TRUE(held.has_value());
  tier.on_query_miss(number(2));
  EXPECT_EQ(tier.ledger().ref_count(number(2)), 1) << "a block in transfer stays";
  tier.release(number(2));
  tier.on_query_miss(number(2));
  EXPECT_FALSE(has(2));
  EXPECT_EQ(o.num_kept(), 1U);
  tier.on_query_miss(number(9));
  EXPECT_EQ(o.num_kept(), 1U);
  for (const std::uint8_t value : {3U, 4U}) {
    tier.on_query_hit(number(value));
    ASSERT_TRUE(tier.hold(number(value)).has_value());
  }
  tier.on_query_hit(number(5));
  EXPECT_FALSE(has(5)) << "no block can be evicted for it";
  EXPECT_EQ(places.gone.size(), 1U);
  tier.ledger().check_invariants();
}

TEST(OffloadOutside, ReportsDroppedBlocksToTheTier) {
  LeftPlaces places;
  OffloadDriver o({.cpu_bytes_to_use = 8}, sync_config(), &places);
  for (std::uint32_t slot = 0; slot < 8; ++slot) o.connector->restore(OffloadSlot{slot}, nullptr);
  o.add(1, 1, 9, 1);
  o.plan();
  const std::vector<OffloadKey> names = names_of(o, 1);
  o.apply();
  o.run();
  EXPECT_TRUE(places.not_to_be_given.empty());
  o.add(2, 1, 9, 20);
  o.d.core->forget_blocks(RequestId{2});
  EXPECT_EQ(places.not_to_be_given, names);
  o.run();
  EXPECT_TRUE(o.d.core->reset_connector_cache());
  EXPECT_GT(places.not_to_be_given.size(), names.size()) << "a reset drops further blocks";
}

TEST(OffloadOutside, FindsAnAdoptedBlockWhenItIsStored) {
  OffloadDriver o({.cpu_bytes_to_use = 3});
  OffloadConnector& tier = *o.connector;
  ASSERT_TRUE(tier.adopt(number(1)).has_value());
  ASSERT_TRUE(tier.adopt(number(2)).has_value());
  EXPECT_EQ(tier.counters().num_stored, 2U);
  EXPECT_FALSE(tier.hold(number(1)).has_value()) << "the block is being stored";
  tier.adopted(number(1), true);
  tier.adopted(number(2), false);
  EXPECT_EQ(tier.counters().num_failed_stores, 1U);
  EXPECT_EQ(tier.ledger().ref_count(number(1)), 0);
  EXPECT_EQ(tier.ledger().ref_count(number(2)), std::nullopt);
  EXPECT_EQ(o.num_kept(), 1U);
  // A reset happens during the store. The block is not found, whether the store succeeds or fails.
  ASSERT_TRUE(tier.adopt(number(3)).has_value());
  tier.reset();
  tier.adopted(number(3), false);
  EXPECT_EQ(o.num_kept(), 0U);
  ASSERT_TRUE(tier.adopt(number(3)).has_value());
  tier.adopted(number(3), true);
  EXPECT_EQ(tier.ledger().ref_count(number(3)), 0) << "the earlier reset has no further effect";
  ASSERT_TRUE(tier.adopt(number(4)).has_value());
  tier.reset();
  tier.adopted(number(4), true);
  EXPECT_EQ(tier.ledger().ref_count(number(4)), std::nullopt);
  tier.ledger().check_invariants();
}

}  // namespace
}  // namespace quire::test
