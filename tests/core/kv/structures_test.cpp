// Compares the free queue, the prefix index and the block pool with the simplest model of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <set>

#include "base/random.h"
#include "core/kv/block_pool.h"
#include "core/kv/free_queue.h"
#include "core/kv/hash/hash_set.h"
#include "core/kv/kv_support.h"
#include "core/kv/prefix_index.h"
#include "core/kv/tokens_per_block.h"

namespace quire::test {
namespace {

BlockHash name(std::uint64_t value) {
  BlockHash hash;
  std::memcpy(hash.bytes.data(), &value, sizeof value);
  return hash;
}

TEST(FreeQueue, StartsWithAllBlocksInOrder) {
  FreeQueue queue(3);
  EXPECT_EQ(values(queue.to_vector()), (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(FreeQueue, BehavesLikeAListUnderRandomOperations) {
  constexpr std::uint32_t kBlocks = 23;
  constexpr std::size_t kMaxReused = 5, kMaxRetained = 3;
  Random random(1);
  FreeQueue queue(kBlocks, {.reused = kMaxReused, .retained = kMaxRetained});
  std::list<std::uint32_t> model, reused, retained;  // one list per segment
  for (std::uint32_t i = 0; i < kBlocks; ++i) model.push_back(i);
  for (int step = 0; step < 30000; ++step) {
    const auto block = static_cast<std::uint32_t>(random.below(kBlocks));
    bool is_free = false;
    for (const auto* segment : {&model, &reused, &retained}) is_free |= std::ranges::find(*segment, block) != segment->end();
    ASSERT_EQ(queue.contains(BlockId{block}), is_free);
    if (!is_free && random.chance(0.4)) {
      queue.push_back(BlockId{block});
      model.push_back(block);
    } else if (!is_free && random.chance(0.6)) {
      const bool is_retained = random.chance(0.5);
      queue.push_back(BlockId{block}, is_retained ? FreeSegment::retained : FreeSegment::reused);
      (is_retained ? retained : reused).push_back(block);
      for (; retained.size() > kMaxRetained; retained.pop_front()) reused.push_back(retained.front());
      for (; reused.size() > kMaxReused; reused.pop_front()) model.push_back(reused.front());
    } else if (!is_free) {
      queue.push_front(BlockId{block});
      model.push_front(block);
    } else if (random.chance(0.5)) {
      queue.remove(BlockId{block});
      for (auto* segment : {&model, &reused, &retained}) segment->remove(block);
    } else if (random.chance(0.02)) {
      queue.merge_segments();
      model.splice(model.end(), reused);
      model.splice(model.end(), retained);
    } else if (random.chance(0.05)) {
      ASSERT_TRUE(queue.assign(queue.to_vector(), FreeQueue::Counts(queue.counts())));
    } else {
      if (model.empty() && reused.empty() && retained.empty()) continue;
      std::list<std::uint32_t>& first = !model.empty() ? model : !reused.empty() ? reused : retained;
      ASSERT_EQ(queue.pop_front().value, first.front());
      first.pop_front();
    }
    std::vector<std::uint32_t> all;
    for (const auto* segment : {&model, &reused, &retained}) all.insert(all.end(), segment->begin(), segment->end());
    ASSERT_EQ(queue.size(), all.size());
    ASSERT_EQ(queue.counts(), (FreeQueue::Counts{static_cast<std::uint32_t>(model.size()), static_cast<std::uint32_t>(reused.size()),
                                                 static_cast<std::uint32_t>(retained.size())}));
    if (!retained.empty()) ASSERT_EQ(queue.oldest(FreeSegment::retained), BlockId{retained.front()});
    ASSERT_EQ(values(queue.to_vector()), all);
    queue.check_invariants();
  }
}

TEST(FreeQueue, AssignsAnOrderOnlyIfEachBlockOccursOnce) {
  FreeQueue queue(4, {.reused = 2, .retained = 1});
  const BlockId order[] = {BlockId{2}, BlockId{0}, BlockId{3}};
  EXPECT_TRUE(queue.assign(order, {3}));
  EXPECT_EQ(values(queue.to_vector()), (std::vector<std::uint32_t>{2, 0, 3}));
  queue.check_invariants();
  const BlockId twice[] = {BlockId{2}, BlockId{0}, BlockId{2}};
  EXPECT_FALSE(queue.assign(twice, {3}));
  EXPECT_FALSE(queue.assign(order, {2})) << "fewer counted blocks than blocks";
  EXPECT_FALSE(queue.assign(order, {UINT32_MAX, 3, 1})) << "more counted blocks than blocks";
  EXPECT_FALSE(queue.assign(order, {0, 3})) << "more reused blocks than the limit";
  const BlockId foreign[] = {BlockId{2}, BlockId{4}};
  EXPECT_FALSE(queue.assign(foreign, {2})) << "only blocks 0 to 3 exist";
}

TEST(FreeQueueDeathTest, StopsOnMisuse) {
  FreeQueue queue(1);
  EXPECT_DEATH(queue.push_back(BlockId{0}), "the block is not in the free queue");
  queue.pop_front();
  EXPECT_DEATH(queue.pop_front(), "there is a free block");
  EXPECT_DEATH(queue.remove(BlockId{0}), "the block is in the free queue");
}

// Hashes with equal first bytes share a bucket. Few hashes for many blocks make duplicates.
void compare_index_with_model(std::uint64_t seed, std::uint64_t num_names, std::uint64_t stride) {
  constexpr std::uint32_t kBlocks = 31;
  Random random(seed);
  PrefixIndex index(kBlocks);
  std::map<std::uint64_t, std::list<std::uint32_t>> model;
  std::map<std::uint32_t, std::uint64_t> names;
  for (int step = 0; step < 20000; ++step) {
    const BlockId block{static_cast<std::uint32_t>(random.below(kBlocks))};
    ASSERT_EQ(index.contains(block), names.contains(block.value));
    if (const auto found = names.find(block.value); found != names.end()) {
      ASSERT_EQ(index.hash_of(block), name(found->second));
      index.remove(block);
      model[found->second].remove(block.value);
      names.erase(found);
    } else {
      const std::uint64_t value = random.below(num_names) * stride;
      index.insert(name(value), block);
      model[value].push_back(block.value);
      names[block.value] = value;
    }
    if (random.chance(0.001)) {
      index.clear();
      model.clear();
      names.clear();
    }
    const std::uint64_t wanted = random.below(num_names) * stride;
    const auto found = index.find(name(wanted));
    ASSERT_EQ(found.has_value(), !model[wanted].empty());
    if (found) ASSERT_EQ(found->value, model[wanted].front()) << "the first inserted block of a hash is found";
    ASSERT_EQ(index.size(), names.size());
    index.check_invariants();
  }
}

TEST(PrefixIndex, BehavesLikeAMapOfLists) {
  compare_index_with_model(2, 200, 1);
}
TEST(PrefixIndex, KeepsDuplicatesInOrderOfInsertion) {
  compare_index_with_model(3, 4, 1);
}
TEST(PrefixIndex, WorksWithAllHashesInOneBucket) {
  compare_index_with_model(4, 20, std::uint64_t{1} << 32);
}
TEST(PrefixIndex, WorksWithAllHashesEqual) {
  compare_index_with_model(5, 1, 1);
}

// Uses two cache groups, and keys of two hashes that share one hash.
TEST(PrefixIndex, DistinguishesGroupsAndAllHashesOfAKey) {
  PrefixIndex index(6, 2);
  const std::array<BlockHash, 3> hashes{name(1), name(2), name(3)};
  const std::array<BlockHash, 2> other{name(9), name(2)};
  index.insert({std::span(hashes).first(2), 0}, BlockId{1});
  index.insert({std::span(hashes).first(2), 1}, BlockId{2});
  index.insert({std::span(other), 0}, BlockId{3});
  index.insert({name(2), 2}, BlockId{4});
  EXPECT_EQ(index.find({std::span(hashes).first(2), 0}), BlockId{1});
  EXPECT_EQ(index.find({std::span(hashes).first(2), 1}), BlockId{2});
  EXPECT_EQ(index.find({std::span(other), 0}), BlockId{3});
  EXPECT_EQ(index.find({name(2), 2}), BlockId{4});
  EXPECT_EQ(index.find({std::span(hashes).subspan(1), 0}), std::nullopt);
  EXPECT_EQ(index.name_of(BlockId{3}).group, 0U);
  EXPECT_EQ(index.name_of(BlockId{3}).hashes.size(), 2U);
  EXPECT_EQ(index.name_of(BlockId{3}).hashes[0], name(9));
  index.remove(BlockId{1});
  EXPECT_EQ(index.find({std::span(hashes).first(2), 0}), std::nullopt);
  EXPECT_EQ(index.find({std::span(hashes).first(2), 1}), BlockId{2});
}

TEST(HashSet, BehavesLikeASetThatIsClearedOften) {
  Random random(6);
  HashSet set;
  std::set<std::uint64_t> model;
  for (int step = 0; step < 50000; ++step) {
    // Multiples of a large power of two start at one slot.
    const std::uint64_t value = random.below(300) << (random.chance(0.5) ? 0 : 40);
    ASSERT_EQ(set.contains(name(value)), model.contains(value));
    if (random.chance(0.5)) {
      set.insert(name(value));
      model.insert(value);
    }
    if (random.chance(0.002)) {
      set.clear();
      model.clear();
    }
    ASSERT_EQ(set.size(), model.size());
    if (step % 64 == 0) set.check_invariants();
  }
}

TEST(TokensPerBlock, RoundsAsPythonDoes) {
  for (const std::uint32_t size : {1U, 2U, 3U, 12U, 16U}) {
    const TokensPerBlock tokens(size);
    for (std::int64_t count = -40; count <= 40; ++count) {
      std::int64_t floor = -100;
      while ((floor + 1) * size <= count) ++floor;
      EXPECT_EQ(tokens.floor(count), floor) << count << " // " << size;
      EXPECT_EQ(tokens.ceil(count), floor * size == count ? floor : floor + 1) << count << " / " << size;
    }
  }
}

TEST(PrefixIndexDeathTest, StopsOnMisuse) {
  PrefixIndex index(2);
  EXPECT_DEATH(index.remove(BlockId{1}), "the block has a hash");
  index.insert(name(1), BlockId{1});
  EXPECT_DEATH(index.insert(name(2), BlockId{1}), "the block has no hash yet");
}

TEST(BlockPool, KeepsTheNullBlockOutOfReach) {
  BlockPool pool(4, nullptr);
  EXPECT_EQ(pool.num_free_blocks(), 3U);
  EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{1, 2, 3}));
  pool.touch(kNullBlock);
  pool.release(kNullBlock);
  pool.release(kNullBlock);
  EXPECT_EQ(pool.num_free_blocks(), 3U);
  EXPECT_EQ(pool.ref_count(kNullBlock), 0U);
}

class Recorder : public EventSink {
 public:
  void on_event(const Event& event) override {
    const BlockHash hash{event.name};
    log.push_back((event.what == EventKind::block_cached ? "cached " : "evicted ") + std::to_string(event.block.value) + " as " +
                  std::to_string(hash.prefix()));
  }
  std::vector<std::string> log;
};

TEST(BlockPool, EvictsAHashOnlyWhenTheBlockIsReusedAndReportsIt) {
  Recorder events;
  BlockPool pool(3, &events);
  const BlockId first = pool.allocate();
  pool.cache(first, name(7));
  pool.release(first);
  EXPECT_EQ(pool.find_cached(name(7)), first);
  EXPECT_EQ(pool.allocate(), BlockId{2}) << "block 2 was free for longer";
  EXPECT_EQ(pool.find_cached(name(7)), first);
  EXPECT_EQ(pool.allocate(), first);
  EXPECT_EQ(pool.find_cached(name(7)), std::nullopt);
  EXPECT_EQ(events.log, (std::vector<std::string>{"cached 1 as 7", "evicted 1 as 7"}));
  EXPECT_EQ(pool.num_evicted_blocks(), 1U);
}

TEST(BlockPool, TouchSavesAFreeBlockFromReuse) {
  BlockPool pool(3, nullptr);
  const BlockId block = pool.allocate();
  pool.cache(block, name(7));
  pool.release(block);
  pool.touch(block);
  EXPECT_EQ(pool.num_free_blocks(), 1U);
  EXPECT_EQ(pool.allocate(), BlockId{2});
  EXPECT_EQ(pool.find_cached(name(7)), block);
}

TEST(BlockPool, EvictsOnlyTheReusedOneOfTwoEqualBlocks) {
  BlockPool pool(4, nullptr);
  const BlockId a = pool.allocate();
  const BlockId b = pool.allocate();
  pool.cache(a, name(7));
  pool.cache(b, name(7));
  pool.release(a);
  EXPECT_EQ(pool.allocate(), BlockId{3});
  EXPECT_EQ(pool.find_cached(name(7)), a);
  EXPECT_EQ(pool.allocate(), a);
  EXPECT_EQ(pool.find_cached(name(7)), b);
}

TEST(BlockPool, ResetsOnlyWhenNoBlockIsHeld) {
  BlockPool pool(3, nullptr);
  const BlockId block = pool.allocate();
  pool.cache(block, name(7));
  EXPECT_FALSE(pool.reset());
  EXPECT_EQ(pool.find_cached(name(7)), block);
  pool.release(block);
  EXPECT_TRUE(pool.reset());
  EXPECT_EQ(pool.find_cached(name(7)), std::nullopt);
}

TEST(BlockPool, ReusesTheBlockFreedLastWithLifo) {
  BlockPool pool(BlockPoolOptions{.num_blocks = 5, .lifo = true}, nullptr);
  const BlockId a = pool.allocate();
  const BlockId b = pool.allocate();
  EXPECT_EQ(a, BlockId{1});
  EXPECT_EQ(b, BlockId{2});
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{2, 1, 3, 4}));
  EXPECT_EQ(pool.allocate(), b);
}

// Two of four blocks are protected: 1 and 3 were found again. Block 2 was cached, but not found; block 4 was found, but lost its hash.
TEST(BlockPool, ReusesBlocksThatWereFoundLast) {
  BlockPool pool(BlockPoolOptions{.num_blocks = 7, .segments = {.reused = 2}}, nullptr);
  for (std::uint32_t i = 1; i <= 4; ++i) pool.cache(pool.allocate(), name(i));
  for (const std::uint32_t i : {1U, 3U, 4U}) pool.touch(BlockId{i});
  for (const std::uint32_t i : {1U, 3U, 4U}) pool.release(BlockId{i});
  pool.evict(BlockId{4});
  for (std::uint32_t i = 1; i <= 4; ++i) pool.release(BlockId{i});
  EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{5, 6, 2, 4, 1, 3}));
  EXPECT_EQ(pool.free_queue().count(FreeSegment::reused), 2U);

  pool.touch(BlockId{2});
  pool.release(BlockId{2});
  EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{5, 6, 4, 1, 3, 2})) << "the oldest is no longer protected";
  EXPECT_EQ(pool.free_queue().count(FreeSegment::reused), 2U);
  for (const std::uint32_t next : {5U, 6U, 4U, 1U, 3U}) EXPECT_EQ(pool.allocate(), BlockId{next});
  pool.cache(BlockId{3}, name(9));
  pool.release(BlockId{3});
  EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{3, 2})) << "its new content was not found yet";
  for (const std::uint32_t i : {1U, 4U, 5U, 6U}) pool.release(BlockId{i});
  EXPECT_TRUE(pool.reset());
  EXPECT_EQ(pool.free_queue().count(FreeSegment::reused), 0U);
  pool.check_invariants(std::vector<std::uint32_t>(7, 0));
}

TEST(BlockPool, ReusesUnhashedBlocksFirstWhenEnabled) {
  for (const bool lifo : {false, true}) {
    BlockPool pool(BlockPoolOptions{.num_blocks = 7, .unhashed_first = true, .lifo = lifo}, nullptr);
    for (int i = 0; i < 4; ++i) pool.allocate();
    pool.cache(BlockId{2}, name(7));
    pool.release(BlockId{1});
    EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{1, 5, 6}));
    pool.release(BlockId{2});
    EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{1, 5, 6, 2})) << "a hashed block goes to the tail";
    const BlockId both[] = {BlockId{4}, BlockId{3}};
    pool.release(both);
    EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{4, 3, 1, 5, 6, 2})) << "unhashed blocks keep their order";
    pool.touch(BlockId{2});
    pool.touch(BlockId{2});
    pool.release(BlockId{2});
    EXPECT_EQ(pool.num_free_blocks(), 5U) << "block 2 still has one reference";
  }
}

TEST(BlockPool, CountsBlocksSetAsideAsUsed) {
  BlockPool pool(BlockPoolOptions{.num_blocks = 5}, nullptr);
  pool.set_aside(2);
  EXPECT_EQ(values(pool.free_queue().to_vector()), (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ(pool.usage(), 0.5);
  EXPECT_FALSE(pool.reset()) << "blocks of a sink count as held, as in vLLM";
  pool.check_invariants(std::vector<std::uint32_t>(5, 0));
}

TEST(BlockPool, KeepsAnEvictedBlockWithItsHolder) {
  BlockPool pool(3, nullptr);
  const BlockId block = pool.allocate();
  pool.cache(block, name(7));
  pool.evict(block);
  EXPECT_EQ(pool.find_cached(name(7)), std::nullopt);
  EXPECT_EQ(pool.ref_count(block), 1U);
  pool.evict(block);
  EXPECT_EQ(pool.num_evicted_blocks(), 0U) << "the counter includes only evictions by reuse";
}

TEST(BlockPool, AppendsTheGroupToKeysInFourBigEndianBytes) {
  BlockPool pool(BlockPoolOptions{.num_blocks = 3, .max_hashes_per_block = 2, .hash_bytes = 16}, nullptr);
  const BlockId block = pool.allocate();
  const std::array<BlockHash, 2> hashes{name(0x0201), name(0x0403)};
  pool.cache(block, {std::span(hashes), 0x01020304});
  const std::vector<std::uint8_t> key = pool.key_of(block);
  ASSERT_EQ(key.size(), 36U);
  EXPECT_EQ(key[0], 1);
  EXPECT_EQ(key[16], 3);
  EXPECT_EQ(std::vector<std::uint8_t>(key.end() - 4, key.end()), (std::vector<std::uint8_t>{1, 2, 3, 4}));
  EXPECT_TRUE(pool.key_of(kNullBlock).empty());
}

TEST(BlockPoolDeathTest, StopsOnMisuse) {
  BlockPool pool(2, nullptr);
  EXPECT_DEATH(pool.release(BlockId{1}), "a released block has a reference");
  EXPECT_DEATH(pool.cache(BlockId{1}, name(1)), "only a referenced block is cached");
}

TEST(PrefixIndex, ReplacesTheOutputListWithItsHashes) {
  PrefixIndex index(6, 2);
  const BlockHash hashes[] = {name(1), name(2), name(3)};
  index.insert({std::span(hashes).first(2), 0}, BlockId{4});
  index.insert({std::span(hashes).last(1), 1}, BlockId{2});
  std::vector<BlockHash> names = {name(9), name(8), name(7)};
  for (int again = 0; again < 2; ++again) {
    const std::vector<PrefixIndex::CachedEntry> all = index.to_entries(names, false);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].block, 2U);
    EXPECT_EQ(all[0].num_hashes, 1U);
    EXPECT_EQ(all[1].block, 4U);
    EXPECT_EQ(all[1].num_hashes, 2U);
    EXPECT_EQ(names, (std::vector<BlockHash>{name(3), name(1), name(2)}));
    PrefixIndex other(6, 2);
    ASSERT_TRUE(other.assign(all, names, false));
    EXPECT_TRUE(other.contains(BlockId{2}) && other.contains(BlockId{4}) && !other.contains(BlockId{3}));
  }
}

}  // namespace
}  // namespace quire::test
