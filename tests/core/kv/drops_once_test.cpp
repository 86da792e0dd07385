// EAGLE drops the last block of a hit. With several kinds of attention each kind drops it once (DecisionRules::eagle_drops_once); a naive
// search checks this. Also tests that a request which needs no block is admitted into a full pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_support.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// Describes groups of one kind and which blocks of a text they have.
struct DroppedKind {
  std::int64_t block_size = 0, window = 0;  // window 0 means full attention
  std::set<std::int64_t> there;

  // Returns the longest hit within `most` tokens, in tokens. With `drops`, the last block is dropped.
  [[nodiscard]] std::int64_t find(std::int64_t most, std::int64_t alignment, bool drops) const {
    const std::int64_t end = most / block_size;
    const std::int64_t less = drops ? 1 : 0;
    if (window == 0) {
      std::int64_t size = 0;
      while (size < end && there.contains(size)) ++size;
      size -= size > 0 ? less : 0;
      while (size * block_size % alignment != 0) --size;
      return size * block_size;
    }
    // Searches from the longest hit. A hit ends at a block end of each kind (with EAGLE, including the dropped block), and all blocks of
    // the window before it must be present.
    const std::int64_t wanted = std::max<std::int64_t>((window - 1 + block_size - 1) / block_size + less, 1);
    for (std::int64_t size = end; size > 0; --size) {
      if (size * block_size % alignment != 0) continue;
      bool all = true;
      for (std::int64_t i = std::max<std::int64_t>(size - wanted, 0); i < size; ++i) all = all && there.contains(i);
      if (all) return (size - less) * block_size;
    }
    return 0;
  }
};

// Implements HybridKVCacheCoordinator of vLLM 0.32.0. The full kind, if there is one, is the first.
std::int64_t naive_hit(const std::vector<DroppedKind>& kinds, std::int64_t max_tokens, std::int64_t num_named, std::int64_t alignment) {
  std::vector<bool> has_dropped(kinds.size(), false);
  std::int64_t of_full = -1, hit = max_tokens;
  const bool once = kinds.size() == 2 && kinds[0].window == 0;
  while (true) {
    std::int64_t left = hit;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i].window == 0 && of_full >= 0) {
        left = std::min(left, of_full);
        continue;
      }
      const bool drops = !has_dropped[i];
      const std::int64_t found = kinds[i].find(drops ? std::min(left + kinds[i].block_size, num_named) : left, alignment, drops);
      if (drops)
        has_dropped[i] = true;
      else if (found < left)
        has_dropped.assign(kinds.size(), false);
      if (kinds[i].window == 0) of_full = found;
      left = found;
    }
    if (left >= hit) break;
    hit = left;
    if (once) break;
  }
  return hit;
}

TEST(DropsOnce, DropsTheLastBlockOfEachKindOnce) {
  std::size_t num_hits = 0, num_short = 0;
  for (std::uint64_t seed = 1; seed <= rounds_of(1500); ++seed) {
    Random random(seed);
    KvCacheOptions options = options_of();
    options.use_eagle = options.rules.eagle_drops_once = true;
    std::vector<LayerKvSpec> specs;
    std::vector<DroppedKind> kinds;
    std::uint64_t num_windows = 0;  // each window is longer than the previous one
    if (random.chance(0.7)) {
      specs.push_back(full());
      kinds.push_back({.block_size = 4, .there = {}});
    }
    while (kinds.size() < 2 || (kinds.size() < 3 && random.chance(0.5))) {
      const auto window = static_cast<std::uint32_t>(random.between(1, 12) + 12 * num_windows++);
      specs.push_back(test::window(window));
      kinds.push_back({.block_size = 4, .window = window, .there = {}});
    }
    KvCacheManager kv(config_of(200, specs), options);
    TestRequest first(std::string(random.between(5, 50), 'x'), 4);
    ASSERT_EQ(kv.allocate_slots(first.view(), {.num_new_tokens = static_cast<std::uint32_t>(first.tokens.size())}), 0U);
    // Evicts some blocks, group by group.
    for (std::uint32_t group = 0; group < kinds.size(); ++group) {
      const auto blocks = first.blocks.blocks(group);
      const double share = random.chance(0.3) ? 0.0 : 0.15;
      for (std::size_t i = 0; i < first.names.size(); ++i) {
        if (blocks[i] == kNullBlock) continue;
        if (random.chance(share))
          kv.evict_blocks(blocks.subspan(i, 1));
        else
          kinds[group].there.insert(static_cast<std::int64_t>(i));
      }
    }
    for (int again = 0; again < 3; ++again) {
      TestRequest request(std::string(random.between(2, 60), 'x'), 4);
      const auto num_tokens = static_cast<std::int64_t>(request.tokens.size());
      const std::int64_t expected = naive_hit(kinds, num_tokens - 1, static_cast<std::int64_t>(request.hashes.size()) * 4, 4);
      const KvHit hit = kv.find_prefix(request.view());
      ASSERT_EQ(hit.num_tokens, expected) << "seed " << seed << ", " << num_tokens << " tokens, " << kinds.size() << " kinds";
      ASSERT_EQ(kv.find_prefix(request.view()).num_tokens, expected) << "a lookup does not change the state";
      for (std::uint32_t group = 0; group < kinds.size() && expected > 0; ++group) {
        const auto blocks = hit.groups[group];
        ASSERT_EQ(static_cast<std::int64_t>(blocks.size()), expected / 4) << "the hits of all groups have equal lengths";
        for (std::size_t i = 0; i < blocks.size(); ++i)
          if (blocks[i] != kNullBlock) ASSERT_EQ(blocks[i], first.blocks.blocks(group)[i]);
      }
      num_hits += expected > 0 ? 1 : 0;
      num_short += expected > 0 && expected < (num_tokens - 1) / 4 * 4 ? 1 : 0;
    }
  }
  EXPECT_GT(num_hits, rounds_of(1500));
  EXPECT_GT(num_short, rounds_of(1500) / 5);
}

// Each token has a hash, so the hashes of a text can end within a block.
TEST(DropsOnce, LooksUpOnlyBlocksWhoseTokensAllHaveHashes) {
  KvCacheOptions options = options_of(1);
  options.use_eagle = options.rules.eagle_drops_once = true;
  KvCacheManager kv(config_of(16, {full(), window(4)}), options);
  TestRequest first("ABCDEFGHIJKL", 1);
  ASSERT_EQ(kv.allocate_slots(first.view(), {.num_new_tokens = 12}), 0U);
  for (const auto& [text, num_tokens] : {std::pair("ABCDEFG", 0U), std::pair("ABCDEFGH", 4U), std::pair("ABCDEFGHIJK", 4U)}) {
    TestRequest request(text, 1);
    EXPECT_EQ(kv.find_prefix(request.view()).num_tokens, num_tokens) << text;
  }
}

TEST(ReservedBlocks, CountsOnlyWhenABlockIsAllocated) {
  KvCacheManager kv(config_of(4, {full()}), options_of());
  TestRequest request("ABCDEFGHI", 4);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 9}), 0U);
  request.num_computed = 9;
  request.append("JKL");
  ASSERT_EQ(kv.pool().num_free_blocks(), 0U);
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 3, .num_min_free_blocks = 2}), 0U)
      << "the third block has room for three tokens";
  request.num_computed = 12;
  request.append("M");
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 1, .num_min_free_blocks = 2}), 3U)
      << "one block for the token and two that must stay free";
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 1}), 1U);
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 1, .num_watermark_blocks = 4}), 5U);
}

TEST(ReservedBlocks, KeepsReservedBlocksEvenWhenNoBlockIsAllocated) {
  KvCacheManager kv(config_of(4, {full()}), options_of());
  TestRequest request("ABCDEFGH", 4);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 7}), 0U);
  request.num_computed = 7;
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 1, .num_reserved_blocks = 1}), 0U);
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 1, .num_watermark_blocks = 1, .num_reserved_blocks = 1}), 1U);
}

}  // namespace
}  // namespace quire::test
