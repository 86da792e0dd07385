// Tests how many blocks a whole sequence is assumed to need: no more than its kind of attention holds at one time. Also tests blocks that
// are freed later.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_support.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

using Ids = std::vector<std::uint32_t>;

// Returns the number of blocks that a new sequence needs, with the given number of tokens in flight.
std::uint32_t missing(const LayerKvSpec& spec, std::uint32_t num_tokens, std::uint32_t in_flight, std::uint32_t max_model_len = 64) {
  KvCacheOptions options = options_of();
  options.max_in_flight_tokens = in_flight;
  options.max_model_len = max_model_len;
  KvCacheManager kv(config_of(2, {spec}), options);
  TestRequest request(std::string(num_tokens, 'x'), 4);
  const std::uint32_t num_missing = kv.missing_for_full_sequence(request.view(), {.num_new_tokens = 1});
  return num_missing + 1;  // one block is free
}

TEST(CapsOnBlocks, CountTheWindowTheTokensInFlightAndOneMoreBlock) {
  EXPECT_EQ(missing(window(8), 40, 0), 10U) << "all blocks count without a number of tokens in flight";
  EXPECT_EQ(missing(window(8), 40, 1), 3U) << "8 tokens need two blocks and one more";
  EXPECT_EQ(missing(window(8), 40, 2), 4U) << "9 tokens take three blocks";
  EXPECT_EQ(missing(window(8), 40, 5), 4U);
  EXPECT_EQ(missing(window(8), 40, 6), 5U);
  EXPECT_EQ(missing(window(8), 40, 40), 10U) << "the number is limited by the tokens of the sequence";
  EXPECT_EQ(missing(window(8), 12, 5), 3U);
  EXPECT_EQ(missing(window(8), 40, 40, 16), 4U) << "the number is limited by the model's length";
}

TEST(CapsOnBlocks, CountTheChunkAndTheTokensInFlight) {
  EXPECT_EQ(missing(chunked(8), 40, 0), 10U);
  EXPECT_EQ(missing(chunked(8), 40, 4), 3U);
  EXPECT_EQ(missing(chunked(8), 40, 5), 4U);
  EXPECT_EQ(missing(chunked(8), 40, 8), 4U);
  EXPECT_EQ(missing(chunked(8), 40, 40), 10U);
  EXPECT_EQ(missing(chunked(8), 4, 4), 1U);
}

TEST(CapsOnBlocks, CountAllTokensForFullAttention) {
  for (const std::uint32_t in_flight : {0U, 1U, 8U}) {
    EXPECT_EQ(missing(full(), 40, in_flight), 10U);
    EXPECT_EQ(missing(mla(), 41, in_flight), 11U);
  }
}

TEST(CapsOnBlocks, EqualTheDefinitionsInRandomCases) {
  Random random(1);
  for (std::uint64_t i = 0; i < rounds_of(2000); ++i) {
    const auto size = static_cast<std::uint32_t>(random.between(1, 24)), tokens = static_cast<std::uint32_t>(random.between(1, 64));
    const auto in_flight = static_cast<std::uint32_t>(random.between(1, 70)), length = static_cast<std::uint32_t>(random.between(8, 80));
    const auto blocks = [](std::uint32_t count) { return (count + 3) / 4; };
    const std::uint32_t all = blocks(std::min(tokens, length));
    const std::uint32_t of_window = blocks(std::min(size - 1 + in_flight, length)) + 1;
    const std::uint32_t of_chunk = blocks(std::min(size + in_flight, length));
    ASSERT_EQ(missing(window(size), tokens, in_flight, length), std::min(all, of_window)) << size << " " << tokens << " " << in_flight;
    ASSERT_EQ(missing(chunked(size), tokens, in_flight, length), std::min(all, of_chunk)) << size << " " << tokens << " " << in_flight;
  }
}

// Returns which blocks of a window get a hash when only some of them do.
Ids hashed_blocks(std::uint32_t window, std::int64_t retention, std::uint32_t num_prompt, bool use_eagle = false,
                  std::uint32_t boundary = 0, std::uint32_t block_size = 4) {
  KvCacheOptions options = options_of(block_size);
  options.retention = retention;
  options.use_eagle = use_eagle;
  KvCacheManager kv(config_of(80, {test::window(window, block_size)}), options);
  TestRequest request(std::string(60, 'x'), block_size);
  KvRequest view = request.view();
  view.num_prompt_tokens = num_prompt;
  view.shared_prefix_boundary = boundary;
  EXPECT_EQ(kv.allocate_slots(view, {.num_new_tokens = 60}), 0U);
  Ids hashed_blocks;
  const std::span<const BlockId> blocks = request.blocks.blocks(0);
  for (std::uint32_t i = 0; i < blocks.size(); ++i)
    if (kv.pool().index().contains(blocks[i])) hashed_blocks.push_back(i);
  return hashed_blocks;
}

TEST(SparseWindows, HashOnlyBlocksBeforeAPossibleHit) {
  EXPECT_EQ(hashed_blocks(8, 0, 33), (Ids{6, 7})) << "only the window of the token after 32 counts";
  EXPECT_EQ(hashed_blocks(8, 0, 32), (Ids{5, 6})) << "the last token of a prompt is computed";
  EXPECT_EQ(hashed_blocks(8, 0, 36), (Ids{6, 7}));
  EXPECT_EQ(hashed_blocks(8, 0, 37), (Ids{7, 8}));
  EXPECT_EQ(hashed_blocks(8, 0, 33, false, 16), (Ids{2, 3, 6, 7})) << "the end of a shared prefix counts too";
  EXPECT_EQ(hashed_blocks(8, 16, 33), (Ids{2, 3, 6, 7, 10, 11, 14})) << "every 16 tokens count too";
  EXPECT_EQ(hashed_blocks(8, 8, 33).size(), 15U) << "the windows of two such positions touch";
  EXPECT_EQ(hashed_blocks(4, 0, 33), (Ids{7}));
  EXPECT_EQ(hashed_blocks(2, 0, 33), (Ids{7}));
}

// The prompt has 33 tokens. With EAGLE a hit needs one more block and ends one block earlier.
TEST(SparseWindows, HashOneMoreBlockAndOneEarlierWithEagle) {
  EXPECT_EQ(hashed_blocks(8, 0, 33, true), (Ids{5, 6, 7}));
  EXPECT_EQ(hashed_blocks(8, 0, 32, true), (Ids{4, 5, 6, 7})) << "a hit has 7 blocks, or all 8 when a request continues the prompt";
  EXPECT_EQ(hashed_blocks(8, 0, 3, true), (Ids{0})) << "there is no earlier block";
}

TEST(SparseWindows, EndHitsAtTheTokenInBlocksOfOneToken) {
  EXPECT_EQ(hashed_blocks(3, 0, 10, false, 0, 1), (Ids{7, 8}));
  EXPECT_EQ(hashed_blocks(3, 0, 10, false, 1, 1), (Ids{0, 7, 8})) << "a shared prefix of a single token counts too";
  EXPECT_EQ(hashed_blocks(3, 0, 10, true, 0, 1), (Ids{6, 7, 8, 9}));
}

// A window of one token has passed all loaded tokens, which do not fill a block.
TEST(WindowsThatPass, LoadNoBlockForPassedTokensWhenTheRuleSaysSo) {
  const auto attached = [](std::uint32_t window, std::int64_t num_external, bool no_load_for_skipped_tokens) {
    BlockPool pool(8, nullptr);
    SlidingWindowManager manager(
        {.group = 0, .block_size = 4, .hash_block_size = 4, .no_load_for_skipped_tokens = no_load_for_skipped_tokens}, window, pool);
    GroupBlockList list;
    return manager.attach(list, {}, 0, num_external);
  };
  for (const std::int64_t num_external : {1, 2, 3}) {
    EXPECT_EQ(attached(1, num_external, true), 0) << num_external;
    EXPECT_EQ(attached(1, num_external, false), 1) << num_external;
    EXPECT_EQ(attached(2, num_external, true), 1) << num_external;
  }
}

TEST(FreedLater, ReturnsBlocksWhenTheyAreDueInOrder) {
  KvCacheManager kv(config_of(12, {full(), window(64)}), options_of());
  TestRequest first("ABCDEFGH", 4), second("abcd", 4);
  ASSERT_EQ(kv.allocate_slots(first.view(), {.num_new_tokens = 8}), 0U);
  ASSERT_EQ(kv.allocate_slots(second.view(), {.num_new_tokens = 4}), 0U);
  const auto queue = [&] { return values(kv.pool().free_queue().to_vector()); };
  const Ids rest = queue();
  const Ids of_first[] = {values(first.blocks.blocks(0)), values(first.blocks.blocks(1))};
  const Ids of_second[] = {values(second.blocks.blocks(0)), values(second.blocks.blocks(1))};
  kv.free_later(first.blocks, 3);
  kv.free_later(second.blocks, 5);
  kv.check_invariants({});
  EXPECT_TRUE(first.blocks.blocks(0).empty());
  for (const std::uint64_t now : {0U, 2U}) kv.free_due(now);
  EXPECT_EQ(queue(), rest) << "nothing is due";
  EXPECT_EQ(kv.pool().ref_count(BlockId{of_first[0][0]}), 1U);
  kv.free_due(4);
  Ids expected = rest;
  for (const std::uint32_t block : {of_first[1][1], of_first[1][0], of_first[0][1], of_first[0][0]}) expected.push_back(block);
  EXPECT_EQ(queue(), expected) << "the last block of the last group is first";
  kv.free_due(5);
  for (const std::uint32_t block : {of_second[1][0], of_second[0][0]}) expected.push_back(block);
  EXPECT_EQ(queue(), expected);
  kv.check_invariants({});
}

// The memory of returned blocks is reused, whatever it contained.
TEST(FreedLater, FreesEachBlockOnceInRandomRuns) {
  for (std::uint64_t seed = 1; seed <= rounds_of(20); ++seed) {
    Random random(seed);
    constexpr std::uint32_t kNumBlocks = 24;
    KvCacheManager kv(config_of(kNumBlocks + 1, {full()}), options_of());
    std::vector<std::pair<std::uint64_t, std::uint32_t>> leaving;  // step at which blocks are due, and their number
    std::uint64_t now = 0;
    for (int step = 0; step < 200; ++step) {
      now += random.below(2);
      kv.free_due(now);
      std::erase_if(leaving, [&](const auto& one) { return one.first <= now; });
      TestRequest request(std::string(random.between(1, 24), static_cast<char>('a' + random.below(26))), 4);
      const auto num_tokens = static_cast<std::uint32_t>(request.tokens.size());
      if (kv.allocate_slots(request.view(), {.num_new_tokens = num_tokens}) == 0) {
        const auto num_blocks = static_cast<std::uint32_t>(request.blocks.blocks(0).size());
        const std::uint64_t due = std::max(now + random.between(1, 3), leaving.empty() ? 0 : leaving.back().first);
        kv.free_later(request.blocks, due);
        leaving.emplace_back(due, num_blocks);
      }
      std::uint32_t num_held = 0;
      for (const auto& [due, count] : leaving) num_held += count;
      ASSERT_EQ(kv.pool().num_free_blocks(), kNumBlocks - num_held) << seed << ", step " << step;
      kv.check_invariants({});
    }
    kv.free_due(now + 100);
    ASSERT_EQ(kv.pool().num_free_blocks(), kNumBlocks);
  }
}

}  // namespace
}  // namespace quire::test
