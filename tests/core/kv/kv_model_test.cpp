// Compares the whole manager with the naive one in simulated scheduling: chunked prefills, hits, external tokens, draft tokens and their
// rejection, preemption, eviction by id, and resets. The pools are tiny, so that blocks are preempted and evicted frequently.
#include <gtest/gtest.h>

#include <array>
#include <list>
#include <ostream>

#include "base/random.h"
#include "core/kv/kv_support.h"
#include "core/kv/naive_cache.h"

namespace quire {
namespace {

using test::NaiveCache;
using test::NaiveGroup;
using test::NaiveKind;
using test::NaiveRules;
using test::TestRequest;
using test::values;

struct Setup {
  std::vector<NaiveGroup> groups;
  std::uint32_t hash_size = 4;
  bool eagle = false;
  bool caching = true;
  NaiveRules rules = {};
};

void PrintTo(const Setup& setup, std::ostream* out) {
  for (const NaiveGroup& group : setup.groups) {
    constexpr std::array kNames{"full", "window", "chunked", "mamba_all", "mamba_align"};
    *out << kNames[static_cast<std::size_t>(group.kind)] << group.size << " ";
  }
  *out << (setup.eagle ? "eagle " : "") << (setup.caching ? "" : "uncached") << (setup.rules.hits_first ? "hits first " : "")
       << (setup.rules.unhashed_first ? "unhashed first " : "") << (setup.rules.passed_nothing ? "no load for passed tokens" : "");
}

LayerKvSpec spec_of(const NaiveGroup& group) {
  const auto size = static_cast<std::uint32_t>(group.size);
  const auto width = static_cast<std::uint32_t>(group.width);
  switch (group.kind) {
    case NaiveKind::full:
      return test::full(size);
    case NaiveKind::window:
      return test::window(width, size);
    case NaiveKind::chunked:
      return test::chunked(width, size);
    case NaiveKind::mamba_all:
      return test::mamba(MambaCacheMode::all, static_cast<std::uint32_t>(group.spec), size);
    default:
      return test::mamba(MambaCacheMode::align, static_cast<std::uint32_t>(group.spec), size);
  }
}

KvCacheConfig config_of(const Setup& setup, std::uint32_t num_blocks) {
  std::vector<LayerKvSpec> specs;
  for (const NaiveGroup& group : setup.groups) specs.push_back(spec_of(group));
  return test::config_of(num_blocks, specs);
}

KvCacheOptions options_of(const Setup& setup) {
  KvCacheOptions options = test::options_of(setup.hash_size);
  options.use_eagle = setup.eagle;
  options.enable_caching = setup.caching;
  options.rules.hits_before_loads = setup.rules.hits_first;
  options.rules.unhashed_blocks_first = setup.rules.unhashed_first;
  options.rules.no_load_for_skipped_tokens = setup.rules.passed_nothing;
  return options;
}

// Holds one request of both managers.
struct Pair {
  explicit Pair(std::uint32_t hash_size, NaiveCache::Sequence sequence) : real(hash_size), naive(std::move(sequence)) {}
  TestRequest real;
  NaiveCache::Sequence naive;
  bool runs = false;
};

class RandomRun {
 public:
  RandomRun(const Setup& setup, std::uint64_t seed, std::uint32_t num_blocks)
      : setup_(setup),
        random_(seed),
        real_(config_of(setup, num_blocks), options_of(setup)),
        naive_(num_blocks, setup.groups, setup.caching, setup.eagle, 64, setup.rules) {
    for (const NaiveGroup& group : setup.groups) {
      aligned_ = group.kind == NaiveKind::mamba_align ? static_cast<std::uint32_t>(group.size) : aligned_;
      num_drafts_ = std::max(num_drafts_, static_cast<std::uint32_t>(group.spec));
    }
  }

  void step() {
    real_.new_step_starts(0.0);
    naive_.step();
    if (pairs_.size() < 6 && random_.chance(0.5)) add();
    for (Pair& pair : pairs_) {
      const double dice = random_.unit();
      if (dice < 0.06)
        drop(pair);
      else if (dice < 0.75)
        pair.runs ? run(pair) : admit(pair);
      ASSERT_NO_FATAL_FAILURE(compare());
    }
    pairs_.remove_if([](const Pair& pair) { return pair.real.tokens.size() > 50 && !pair.runs; });
    rare();
    ASSERT_NO_FATAL_FAILURE(compare());
  }

  std::uint64_t num_hits = 0, num_failures = 0, num_steps = 0;

 private:
  void append(Pair& pair, std::uint64_t num_tokens) {
    std::vector<TokenId> tokens;
    for (std::uint64_t i = 0; i < num_tokens; ++i) tokens.push_back(random_.chance(0.06) ? 1 : 0);
    pair.real.append(tokens);
  }

  void add() {
    Pair& pair = pairs_.emplace_back(setup_.hash_size, naive_.sequence());
    append(pair, random_.between(1, 40));
  }

  // Chunks end at block ends when states are aligned.
  std::uint32_t split(const Pair& pair, std::uint32_t start, std::uint32_t num_new) const {
    const auto num_tokens = static_cast<std::uint32_t>(pair.real.tokens.size());
    if (aligned_ == 0 || start >= num_tokens) return num_new;
    const std::uint32_t last = num_tokens / aligned_ * aligned_;
    if (start + num_new < last) return num_new / aligned_ * aligned_;
    return start < last && last < start + num_new ? last - start : num_new;
  }

  void admit(Pair& pair) {
    const auto num_tokens = static_cast<std::uint32_t>(pair.real.tokens.size());
    const KvHit hit = real_.find_prefix(pair.real.view());
    const NaiveCache::Hit naive_hit = naive_.find(pair.real.tokens);
    ASSERT_EQ(hit.num_tokens, naive_hit.tokens);
    ASSERT_EQ(hit.groups.empty(), naive_hit.shared);
    for (std::size_t g = 0; g < hit.groups.size(); ++g) ASSERT_EQ(values(hit.groups[g]), naive_hit.groups[g]) << "group " << g;
    num_hits += hit.num_tokens > 0 ? 1 : 0;
    SlotDemand demand{.num_new_computed_tokens = hit.num_tokens};
    if (aligned_ == 0 && random_.chance(0.2)) {
      demand.num_external_tokens = static_cast<std::uint32_t>(random_.below(num_tokens - hit.num_tokens));
      demand.delay_caching = random_.chance(0.3);
    }
    const std::uint32_t start = hit.num_tokens + demand.num_external_tokens;
    demand.num_new_tokens = split(pair, start, static_cast<std::uint32_t>(random_.between(1, num_tokens - start)));
    if (demand.num_new_tokens > 0) {
      ASSERT_NO_FATAL_FAILURE(allocate(pair, demand, hit, naive_hit));
      pair.real.num_computed += pair.runs ? start : 0;
    }
  }

  void run(Pair& pair) {
    const auto num_tokens = static_cast<std::uint32_t>(pair.real.tokens.size());
    if (pair.real.num_computed == num_tokens) {
      append(pair, 1 + random_.below(num_drafts_ + 1));
      return;
    }
    const std::uint32_t left = num_tokens - pair.real.num_computed;
    SlotDemand demand{.num_new_tokens = split(pair, pair.real.num_computed, static_cast<std::uint32_t>(random_.between(1, left)))};
    if (demand.num_new_tokens == left) demand.num_new_tokens += num_drafts_;  // all draft tokens are rejected
    demand.num_lookahead_tokens = setup_.eagle ? num_drafts_ : 0;
    if (random_.chance(0.2)) demand.num_unsure_tokens = static_cast<std::uint32_t>(random_.below(8));
    if (demand.num_new_tokens > 0) ASSERT_NO_FATAL_FAILURE(allocate(pair, demand, {}, {}));
  }

  void allocate(Pair& pair, const SlotDemand& demand, const KvHit& hit, const NaiveCache::Hit& naive_hit) {
    const NaiveCache::Demand naive_demand{.computed = pair.real.num_computed,
                                          .fresh = demand.num_new_tokens,
                                          .hit = demand.num_new_computed_tokens,
                                          .lookahead = demand.num_lookahead_tokens,
                                          .external = demand.num_external_tokens,
                                          .delay = demand.delay_caching,
                                          .unsure = demand.num_unsure_tokens};
    NaiveCache::Hit given = naive_hit;
    given.groups.resize(setup_.groups.size());
    const bool fits = naive_.fits(pair.naive, pair.real.tokens, given, naive_demand);
    ASSERT_EQ(real_.missing_for_full_sequence(pair.real.view(), demand, hit) == 0, fits);
    const bool done = naive_.allocate(pair.naive, pair.real.tokens, given, naive_demand);
    ASSERT_EQ(real_.allocate_slots(pair.real.view(), demand, hit) == 0, done);
    pair.runs = pair.runs || done;
    if (done) {
      const auto num_tokens = static_cast<std::uint32_t>(pair.real.tokens.size());
      const std::uint32_t computed = pair.real.num_computed + demand.num_new_tokens;
      pair.real.num_computed = std::min(computed, num_tokens - demand.num_new_computed_tokens - demand.num_external_tokens);
    } else {
      ++num_failures;
      if (pair.runs) drop(pair);
    }
  }

  void drop(Pair& pair) {
    if (random_.chance(0.3)) {
      real_.remove_skipped_blocks(pair.real.blocks, pair.real.num_computed);
      naive_.skip(pair.naive, pair.real.num_computed);
    }
    real_.free(pair.real.blocks);
    naive_.free(pair.naive);
    pair.real.num_computed = 0;
    pair.runs = false;
  }

  void rare() {
    if (random_.chance(0.03)) {
      const BlockId block{static_cast<std::uint32_t>(random_.between(1, real_.pool().num_blocks() - 1))};
      real_.evict_blocks(std::span(&block, 1));
      naive_.evict(block.value);
    }
    if (random_.chance(0.02)) ASSERT_EQ(real_.reset_prefix_cache(), naive_.reset());
  }

  void compare() {
    ++num_steps;
    ASSERT_EQ(values(real_.pool().free_queue().to_vector()), naive_.free_queue());
    ASSERT_EQ(real_.pool().index().size(), naive_.num_named());
    std::vector<const KvBlocks*> sequences;
    for (const Pair& pair : pairs_) {
      sequences.push_back(&pair.real.blocks);
      for (std::uint32_t g = 0; g < setup_.groups.size(); ++g) {
        ASSERT_EQ(values(pair.real.blocks.blocks(g)), pair.naive.blocks[g]) << "group " << g;
        ASSERT_EQ(pair.real.blocks.num_cached_blocks(g), pair.naive.cached[g]) << "group " << g;
      }
    }
    for (std::uint32_t i = 1; i < real_.pool().num_blocks(); ++i) ASSERT_EQ(real_.pool().ref_count(BlockId{i}), naive_.refs(i));
    real_.check_invariants(sequences);
  }

  Setup setup_;
  Random random_;
  KvCacheManager real_;
  NaiveCache naive_;
  std::list<Pair> pairs_;
  std::uint32_t aligned_ = 0;
  std::uint32_t num_drafts_ = 0;
};

constexpr NaiveGroup kFull{.kind = NaiveKind::full};
constexpr NaiveGroup kWindow{.kind = NaiveKind::window, .width = 9};
constexpr NaiveGroup kNarrow{.kind = NaiveKind::window, .width = 4};
constexpr NaiveGroup kLone{.kind = NaiveKind::window, .width = 1};
constexpr NaiveGroup kChunked{.kind = NaiveKind::chunked, .width = 12};
constexpr NaiveGroup kStates{.kind = NaiveKind::mamba_all, .spec = 1};
constexpr NaiveGroup kAligned{.kind = NaiveKind::mamba_align, .spec = 2};

class KvModel : public testing::TestWithParam<Setup> {};

TEST_P(KvModel, AgreesWithTheNaiveManagerUnderRandomUse) {
  std::uint64_t num_hits = 0, num_failures = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto num_groups = static_cast<std::uint32_t>(GetParam().groups.size());
    RandomRun run(GetParam(), seed, (seed % 2 == 0 ? 10 : 24) + 5 * num_groups);
    for (int i = 0; i < 150; ++i) ASSERT_NO_FATAL_FAILURE(run.step()) << "seed " << seed << ", step " << i;
    num_hits += run.num_hits;
    num_failures += run.num_failures;
  }
  // With three kinds under EAGLE every pass drops one more block, as in vLLM, so hits become short.
  const bool spirals = GetParam().eagle && GetParam().groups.size() > 2;
  EXPECT_TRUE(num_hits > 20 || !GetParam().caching || spirals) << "the run must contain enough hits: " << num_hits;
  EXPECT_GT(num_failures, 10U);
}

NaiveGroup sized(NaiveGroup group, long size) {
  group.size = size;
  return group;
}

INSTANTIATE_TEST_SUITE_P(OneGroup, KvModel,
                         testing::Values(Setup{{kFull}}, Setup{{kFull}, 4, true}, Setup{{sized(kFull, 3)}, 3}, Setup{{kWindow}},
                                         Setup{{kWindow}, 4, true}, Setup{{kChunked}}, Setup{{kStates}}, Setup{{kAligned}},
                                         Setup{{kFull}, 4, false, false}, Setup{{kAligned}, 4, false, false}));
INSTANTIATE_TEST_SUITE_P(Hybrid, KvModel,
                         testing::Values(Setup{{kFull, kWindow}}, Setup{{kFull, kWindow}, 4, true}, Setup{{kWindow, kFull, kWindow}},
                                         Setup{{kFull, kChunked}}, Setup{{kFull, kAligned}}, Setup{{kFull, kStates, kStates}, 4, true},
                                         Setup{{kFull, kWindow, kNarrow}}, Setup{{kFull, kWindow, kNarrow}, 4, true},
                                         Setup{{kWindow, kStates}}, Setup{{kFull, kWindow, kAligned}}, Setup{{sized(kFull, 8), kWindow}},
                                         Setup{{kFull, sized(kWindow, 8)}}, Setup{{sized(kFull, 8), kStates}},
                                         Setup{{kFull, sized(kAligned, 8)}}, Setup{{kFull, kWindow, kAligned}, 4, false, false}));
constexpr NaiveRules kHitsFirst{.hits_first = true};
constexpr NaiveRules kUnhashedFirst{.unhashed_first = true};
constexpr NaiveRules kAllRules{.hits_first = true, .unhashed_first = true, .passed_nothing = true};
INSTANTIATE_TEST_SUITE_P(HitsFirst, KvModel,
                         testing::Values(Setup{{kFull}, 4, false, true, kHitsFirst}, Setup{{kFull, kWindow}, 4, false, true, kHitsFirst},
                                         Setup{{kWindow, kFull, kNarrow}, 4, false, true, kHitsFirst},
                                         Setup{{kFull, kWindow, kAligned}, 4, false, true, kHitsFirst}));
INSTANTIATE_TEST_SUITE_P(NewerRules, KvModel,
                         testing::Values(Setup{{kFull}, 4, false, true, kUnhashedFirst}, Setup{{kAligned}, 4, false, true, kUnhashedFirst},
                                         Setup{{kFull, kWindow}, 4, false, true, kUnhashedFirst},
                                         Setup{{kFull, kWindow}, 4, false, false, kUnhashedFirst},
                                         Setup{{kWindow}, 4, false, true, NaiveRules{.passed_nothing = true}},
                                         Setup{{kWindow, kLone}, 4, false, true, NaiveRules{.passed_nothing = true}},
                                         Setup{{kFull, kNarrow, kLone}, 4, false, true, kAllRules},
                                         Setup{{kFull, kWindow, kAligned}, 4, false, true, kAllRules}));

}  // namespace
}  // namespace quire
