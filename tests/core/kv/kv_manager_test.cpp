#include "core/kv/kv_manager.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "core/kv/naive_kv.h"

namespace quire {
namespace {

using test::NaiveKv;
using test::values;
using Ids = std::vector<std::uint32_t>;

std::vector<TokenId> text(std::string_view letters) {
  return {letters.begin(), letters.end()};
}

// The example of vLLM's design document on prefix caching, with its ten blocks of four tokens; every id is one higher because of the
// null block.
TEST(WorkedExample, TenBlocksStepByStep) {
  Sha256BlockHasher hasher("");
  KvManager kv({.block_size = 4, .num_blocks = 11, .max_model_len = 40, .enable_prefix_caching = true}, hasher, nullptr);
  const auto queue = [&] { return values(kv.pool().free_queue().to_vector()); };
  const auto num_cached = [&] { return kv.pool().index().size(); };
  EXPECT_EQ(queue(), (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));

  // Request 0 enters with 15 tokens: three full blocks and one of three tokens.
  auto tokens0 = text("ABCDEFGHIJKLMNO");
  KvSequence request0;
  kv.extend_hashes(request0, tokens0, {});
  PrefixHit hit = kv.find_prefix(request0, 15);
  EXPECT_EQ(hit.num_tokens, 0U);
  ASSERT_EQ(kv.allocate(request0, hit, {0, 15, 15}), 0U);
  EXPECT_EQ(values(request0.blocks()), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(num_cached(), 3U);
  EXPECT_EQ(queue(), (Ids{5, 6, 7, 8, 9, 10}));

  // Its first output fills the fourth block, its second one needs a fifth.
  tokens0.push_back('P');
  kv.extend_hashes(request0, tokens0, {});
  ASSERT_EQ(kv.allocate(request0, {}, {15, 1, 16}), 0U);
  EXPECT_EQ(num_cached(), 4U);
  tokens0.push_back('Q');
  kv.extend_hashes(request0, tokens0, {});
  ASSERT_EQ(kv.allocate(request0, {}, {16, 1, 17}), 0U);
  EXPECT_EQ(values(request0.blocks()), (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(queue(), (Ids{6, 7, 8, 9, 10}));

  // Request 1 shares ten tokens, of which two blocks are full.
  const auto tokens1 = text("ABCDEFGHIJklmn");
  KvSequence request1;
  kv.extend_hashes(request1, tokens1, {});
  hit = kv.find_prefix(request1, 14);
  EXPECT_EQ(values(hit.blocks), (Ids{1, 2}));
  EXPECT_EQ(hit.num_tokens, 8U);
  ASSERT_EQ(kv.allocate(request1, hit, {0, 6, 14}), 0U);
  EXPECT_EQ(values(request1.blocks()), (Ids{1, 2, 6, 7}));
  EXPECT_EQ(num_cached(), 5U);
  EXPECT_EQ(queue(), (Ids{8, 9, 10}));
  EXPECT_EQ(kv.pool().ref_count(BlockId{1}), 2U);

  // Request 0 ends: its own blocks go to the tail, last one first; the shared ones stay.
  kv.free(request0);
  EXPECT_EQ(queue(), (Ids{8, 9, 10, 5, 4, 3}));
  EXPECT_EQ(kv.pool().ref_count(BlockId{1}), 1U);

  // Request 1 ends.
  kv.free(request1);
  EXPECT_EQ(queue(), (Ids{8, 9, 10, 5, 4, 3, 7, 6, 2, 1}));
  EXPECT_EQ(num_cached(), 5U);

  // Request 2 has 29 tokens, of which three blocks are cached; the hit is saved before anything is evicted, and block 4 is evicted.
  const auto tokens2 = text("ABCDEFGHIJKL0123456789abcdefg");
  ASSERT_EQ(tokens2.size(), 29U);
  KvSequence request2;
  kv.extend_hashes(request2, tokens2, {});
  hit = kv.find_prefix(request2, 29);
  EXPECT_EQ(values(hit.blocks), (Ids{1, 2, 3}));
  EXPECT_EQ(kv.missing_for_full_sequence(request2, hit, 29), 0U);
  ASSERT_EQ(kv.allocate(request2, hit, {0, 17, 29}), 0U);
  EXPECT_EQ(values(request2.blocks()), (Ids{1, 2, 3, 8, 9, 10, 5, 4}));
  EXPECT_EQ(queue(), (Ids{7, 6}));
  EXPECT_EQ(num_cached(), 3U + 1U + 4U) << "the hit, request 1's third block (still in the queue), and four new full ones";
  EXPECT_EQ(kv.pool().num_evicted_blocks(), 1U);
}

class KvManagerTest : public testing::Test {
 protected:
  KvManager make(std::uint32_t num_blocks, bool caching = true) {
    return {{.block_size = 4, .num_blocks = num_blocks, .max_model_len = 64, .enable_prefix_caching = caching}, hasher_, nullptr};
  }
  Sha256BlockHasher hasher_{""};
};

TEST_F(KvManagerTest, AHitLeavesOneTokenToCompute) {
  KvManager kv = make(20);
  const auto tokens = text("ABCDEFGH");
  KvSequence first;
  kv.extend_hashes(first, tokens, {});
  ASSERT_EQ(kv.allocate(first, {}, {0, 8, 8}), 0U);
  KvSequence second;
  kv.extend_hashes(second, tokens, {});
  EXPECT_EQ(kv.find_prefix(second, 8).num_tokens, 4U);
  auto longer = tokens;
  longer.push_back('I');
  EXPECT_EQ(kv.find_prefix(second, 9).num_tokens, 8U);
}

TEST_F(KvManagerTest, AFailedAllocationChangesNothing) {
  KvManager kv = make(4);
  const auto tokens = text("ABCDEFGHIJKLMNOPQ");
  KvSequence first;
  kv.extend_hashes(first, tokens, {});
  ASSERT_EQ(kv.allocate(first, {}, {0, 8, 17}), 0U);
  kv.free(first);
  const auto queue = kv.pool().free_queue().to_vector();
  KvSequence second;
  kv.extend_hashes(second, tokens, {});
  const PrefixHit hit = kv.find_prefix(second, 17);
  EXPECT_EQ(hit.num_tokens, 8U);
  EXPECT_EQ(kv.missing_for_full_sequence(second, hit, 17), 2U) << "five blocks, three are free, the two of the hit among them";
  EXPECT_EQ(kv.allocate(second, hit, {0, 9, 17}), 2U);
  EXPECT_TRUE(second.blocks().empty());
  EXPECT_EQ(kv.pool().free_queue().to_vector(), queue);
}

TEST_F(KvManagerTest, WithoutCachingNothingIsNamedOrFound) {
  KvManager kv = make(20, false);
  const auto tokens = text("ABCDEFGHI");
  KvSequence sequence;
  kv.extend_hashes(sequence, tokens, {});
  EXPECT_TRUE(sequence.hashes().empty());
  ASSERT_EQ(kv.allocate(sequence, {}, {0, 9, 9}), 0U);
  EXPECT_EQ(kv.pool().index().size(), 0U);
  EXPECT_EQ(kv.find_prefix(sequence, 9).num_tokens, 0U);
}

TEST_F(KvManagerTest, TokensNotKnownYetAreNotCached) {
  KvManager kv = make(20);
  const auto tokens = text("ABCDEF");
  KvSequence sequence;
  kv.extend_hashes(sequence, tokens, {});
  ASSERT_EQ(kv.allocate(sequence, {}, {0, 8, 6}), 0U);
  EXPECT_EQ(sequence.num_cached_blocks(), 1U);
  EXPECT_EQ(sequence.blocks().size(), 2U);
}

TEST_F(KvManagerTest, UsageLeavesTheNullBlockOut) {
  KvManager kv = make(5);
  EXPECT_EQ(kv.usage(), 0.0);
  KvSequence sequence;
  ASSERT_EQ(kv.allocate(sequence, {}, {0, 5, 0}), 0U);
  EXPECT_EQ(kv.usage(), 0.5);
}

// One request of the random run, known to both sides.
struct Pair {
  std::vector<TokenId> tokens;
  ExtraKeys extra;
  std::uint32_t num_computed = 0;
  KvSequence real;
  NaiveKv::Sequence naive;
};

class RandomRun {
 public:
  RandomRun(std::uint64_t seed, std::uint32_t num_blocks, bool caching)
      : random_(seed),
        kv_({.block_size = 4, .num_blocks = num_blocks, .max_model_len = 400, .enable_prefix_caching = caching}, hasher_, nullptr),
        naive_(num_blocks, 4, caching) {}

  void step() {
    const double dice = random_.unit();
    if (dice < 0.3 || pairs_.empty()) {
      admit();
    } else if (dice < 0.8) {
      grow(any());
    } else if (dice < 0.999) {
      drop();
    } else {
      ASSERT_EQ(kv_.reset_prefix_cache(), naive_.reset());
    }
    compare();
  }

  std::uint64_t num_hits = 0, num_failures = 0;

 private:
  std::size_t any() { return random_.below(pairs_.size()); }

  // Few tokens and few adapters, so that prefixes are shared often.
  void append(Pair& pair, std::uint64_t num_tokens) {
    for (std::uint64_t i = 0; i < num_tokens; ++i) {
      pair.tokens.push_back(random_.chance(0.15) ? 1 : 0);
    }
    kv_.extend_hashes(pair.real, pair.tokens, pair.extra);
  }

  void admit() {
    Pair pair;
    pair.extra.cache_salt = random_.chance(0.2) ? "salt" : "";
    pair.extra.lora_name = random_.chance(0.2) ? "lora" : "";
    if (random_.chance(0.2)) {
      pair.extra.multimodal = {{"image", static_cast<std::uint32_t>(random_.below(8)), 3}};
    }
    append(pair, random_.between(1, 40));
    const auto naive_hit = naive_.find_prefix(pair.tokens, pair.extra);
    const auto num_known = static_cast<std::uint32_t>(pair.tokens.size());
    const PrefixHit hit = kv_.find_prefix(pair.real, num_known);
    ASSERT_EQ(values(hit.blocks), naive_hit);
    ASSERT_EQ(kv_.missing_for_full_sequence(pair.real, hit, num_known), naive_.missing(pair.naive, naive_hit, num_known));
    num_hits += hit.blocks.size();
    const auto num_new = static_cast<std::uint32_t>(random_.between(1, num_known - hit.num_tokens));
    const bool fits = naive_.allocate(pair.naive, naive_hit, hit.num_tokens + num_new, pair.tokens, pair.extra);
    ASSERT_EQ(kv_.allocate(pair.real, hit, {0, num_new, num_known}) == 0, fits);
    num_failures += fits ? 0 : 1;
    if (fits) {
      pair.num_computed = hit.num_tokens + num_new;
      pairs_.push_back(std::move(pair));
    }
  }

  void grow(std::size_t at) {
    Pair& pair = pairs_[at];
    if (pair.num_computed == pair.tokens.size()) {
      append(pair, 1);
    }
    const auto num_known = static_cast<std::uint32_t>(pair.tokens.size());
    const auto num_new = static_cast<std::uint32_t>(random_.between(1, num_known - pair.num_computed));
    const bool fits = naive_.allocate(pair.naive, {}, pair.num_computed + num_new, pair.tokens, pair.extra);
    ASSERT_EQ(kv_.allocate(pair.real, {}, {pair.num_computed, num_new, num_known}) == 0, fits);
    num_failures += fits ? 0 : 1;
    pair.num_computed += fits ? num_new : 0;
  }

  void drop() {
    const std::size_t at = any();
    kv_.free(pairs_[at].real);
    naive_.free(pairs_[at].naive);
    pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void compare() {
    ASSERT_EQ(values(kv_.pool().free_queue().to_vector()), naive_.free_queue());
    ASSERT_EQ(kv_.pool().index().size(), naive_.num_cached_blocks());
    std::vector<std::uint32_t> holders(kv_.pool().num_blocks(), 0);
    for (const Pair& pair : pairs_) {
      ASSERT_EQ(values(pair.real.blocks()), pair.naive.blocks);
      ASSERT_EQ(pair.real.num_cached_blocks(), pair.naive.num_cached);
      kv_.check_sequence(pair.real, holders);
    }
    for (std::uint32_t i = 1; i < kv_.pool().num_blocks(); ++i) {
      ASSERT_EQ(kv_.pool().ref_count(BlockId{i}), naive_.refs(i));
    }
    kv_.pool().check_invariants(holders);
  }

  Random random_;
  Sha256BlockHasher hasher_{"seed"};
  KvManager kv_;
  NaiveKv naive_;
  std::vector<Pair> pairs_;
};

TEST(KvManagerModel, AgreesWithTheNaiveOneUnderRandomOperations) {
  std::uint64_t num_hits = 0;
  std::uint64_t num_failures = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    RandomRun run(seed, seed % 2 == 0 ? 12 : 40, seed != 7);
    for (int i = 0; i < 1500; ++i) {
      ASSERT_NO_FATAL_FAILURE(run.step()) << "seed " << seed << ", step " << i;
    }
    num_hits += run.num_hits;
    num_failures += run.num_failures;
  }
  EXPECT_GT(num_hits, 500U) << "the run must meet what it is about";
  EXPECT_GT(num_failures, 500U);
}

}  // namespace
}  // namespace quire
