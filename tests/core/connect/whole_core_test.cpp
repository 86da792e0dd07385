// Random requests run through the core with and without the offloading connector, and the tokens are the same. The worker detects each
// wrong entry that it reads. Copies are made at any time between the begin and the end of a transfer, in any order except for copies of one
// slot. Slots of a persistent tier get new numbers, stores that a step waits for are dropped, and a second run finds the blocks of the
// first.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/random.h"
#include "core/connect/grouped_config.h"
#include "core/connect/lasting_places.h"
#include "core/connect/offload_connector.h"
#include "core/connect/random_copies.h"
#include "core/journal/told.h"
#include "core/schedule/fake_worker.h"
#include "quire/core.h"
#include "support/decision_record.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kCopyBlock = 4;

struct Play {
  bool is_async = false, prefix_caching = true;
  std::vector<std::uint32_t> windows = {0};  // per cache group; 0: full attention
  OffloadConnectorOptions offload;
  double failed = 0.0;
  double forks = 0.0;              // probability per step
  TierContent* lasting = nullptr;  // the tier's blocks before and after the run
};

struct Played {
  std::map<RequestId, std::vector<TokenId>> outputs;  // without the outputs of forked children
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_forks = 0, num_copied_blocks = 0;
  OffloadCounters counters;
};

CoreConfig tight_config(const Play& run) {
  CoreConfig config;
  config.block_size = kCopyBlock;
  const auto num_groups = static_cast<std::uint32_t>(run.windows.size());
  config.kv = {.num_blocks = 10 + 20 * num_groups, .groups = cache_groups_of(run.windows, kCopyBlock), .tensors = {}};
  config.scheduler.max_num_seqs = 5;
  config.scheduler.max_num_batched_tokens = 32;
  config.scheduler.max_model_len = 96;
  config.scheduler.async_scheduling = run.is_async;
  config.scheduler.reserve_full_isl = false;
  config.prefix_cache.enable_prefix_caching = run.prefix_caching;
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.fixes.loaded_give_way = true;
  config.fixes.hits_before_loads = true;
  return config;
}

// Restores some of the remaining slots in random order.
class RandomRestores {
 public:
  RandomRestores(OffloadConnector& connector, const TierContent& content) : connector_(connector), content_(content) {
    for (std::uint32_t slot = connector.ledger().num_unread(); slot-- > 0;) untold_.push_back(slot);
  }
  void proceed(Random& random) {
    for (std::uint64_t i = random.below(4); i > 0 && !untold_.empty(); --i) {
      std::swap(untold_[random.below(untold_.size())], untold_.back());
      const auto block = content_.blocks.find(untold_.back());
      const bool is_held = block != content_.blocks.end() && !block->second.empty();
      connector_.restore(OffloadSlot{untold_.back()}, is_held ? &content_.names.at(untold_.back()) : nullptr);
      untold_.pop_back();
    }
  }

 private:
  OffloadConnector& connector_;
  const TierContent& content_;
  std::vector<std::uint32_t> untold_;
};

// Forks random running requests. Each child has a separate seed, so it diverges and writes to shared blocks.
class RandomForks {
 public:
  RandomForks(Core& core, FakeWorker& worker, Random& random) : core_(core), worker_(worker), random_(random) {}

  void fork_one(std::uint64_t num_added) {
    const std::uint64_t number = random_.below(num_added + children_.size());
    const RequestId parent{number < num_added ? number + 1 : kFirst + number - num_added};
    const auto view = core_.view(parent);
    if (!view || is_finished(view->status)) return;
    const RequestId id{kFirst + children_.size()};
    ForkRequest child{.id = id, .arrival_time = static_cast<double>(id.value)};
    if (random_.chance(0.5)) child.num_tokens = static_cast<std::uint32_t>(random_.between(view->num_prompt_tokens, view->tokens.size()));
    if (random_.chance(0.3)) child.next_token = static_cast<TokenId>(random_.below(500));
    if (!core_.fork(parent, child)) return;  // its outputs exist already
    const RequestView forked = *core_.view(id);
    children_.push_back(
        {{forked.tokens.begin(), forked.tokens.end()}, forked.max_tokens - (forked.tokens.size() - forked.num_prompt_tokens)});
    worker_.set_seed(id, id.value);
  }
  // Checks the outputs of the children and removes them.
  void check(std::map<RequestId, std::vector<TokenId>>& outputs) const {
    for (std::size_t i = 0; i < children_.size(); ++i) {
      const RequestId id{kFirst + i};
      EXPECT_EQ(outputs[id], worker_.expected(children_[i].tokens, 0, children_[i].num_outputs, id.value)) << "child " << i;
      outputs.erase(id);
    }
  }

 private:
  static constexpr std::uint64_t kFirst = 10000;
  struct Child {
    std::vector<TokenId> tokens;
    std::size_t num_outputs;
  };

  Core& core_;
  FakeWorker& worker_;
  Random& random_;
  std::vector<Child> children_;
};

test::DecisionRecord& offload_record() {
  static test::DecisionRecord record("tests/golden/decisions_offload.txt");
  return record;
}

Played play_requests(const Play& run, bool with_connector, std::uint64_t seed) {
  const CoreConfig config = tight_config(run);
  LastingPlaces places;
  LastingPlaces* const lasting = run.lasting != nullptr ? &places : nullptr;
  const auto connector = OffloadConnector::create(run.offload, config, 1, lasting).value();
  const auto core = Core::create(config, {.connector = with_connector ? connector.get() : nullptr}).value();
  FakeWorker worker(config.kv.num_blocks, kCopyBlock, config.scheduler.max_num_seqs, 500);
  worker.use_windows(run.windows);
  Random requests(seed), chances(seed + 1);
  TierContent own_content;
  TierContent& content = lasting != nullptr ? *run.lasting : own_content;
  RandomCopies copies(worker, chances, run.failed, lasting, content);
  RandomRestores restores(*connector, content);
  RandomForks forks(*core, worker, chances);
  Played played;
  Told told(true);
  std::deque<std::pair<StepId, std::vector<SampledToken>>> results;
  std::uint64_t num_added = 0;
  for (int step = 0; step < 6000; ++step) {
    restores.proceed(chances);
    if (num_added < 120 && requests.chance(0.3)) {
      std::vector<TokenId> prompt;
      const std::uint64_t family = requests.below(4);
      for (std::uint64_t i = requests.between(1, 50); i > 0; --i) prompt.push_back(static_cast<TokenId>(family * 50 + prompt.size()));
      for (std::uint64_t i = requests.between(1, 6); i > 0; --i) prompt.push_back(static_cast<TokenId>(requests.below(500)));
      const auto max_tokens = static_cast<std::uint32_t>(requests.between(1, 25));
      const NewRequest request{.id = RequestId{++num_added}, .prompt = prompt, .max_tokens = max_tokens};
      EXPECT_TRUE(core->add(request));
    }
    if (run.forks > 0.0 && num_added > 0 && num_added < 120 && chances.chance(run.forks)) forks.fork_one(num_added);
    if (results.size() < (run.is_async ? 2U : 1U)) {
      const StepPlan& plan = core->schedule();
      told(plan);
      for (const Transfer& transfer : plan.transfers)
        if (transfer.direction == TransferDirection::store) copies.start(transfer, plan.step);
      for (const TransferId id : plan.fences) copies.wait(id);
      for (const Transfer& transfer : plan.transfers)
        if (transfer.direction == TransferDirection::load) copies.start(transfer, plan.step);
      copies.proceed(0.2);
      const StepResult result = worker.run(plan);
      results.emplace_back(result.step, std::vector<SampledToken>(result.sampled.begin(), result.sampled.end()));
      copies.proceed(0.2);
      if (run.is_async && results.size() < 2) continue;
    }
    const std::vector<TransferCompletion> over = copies.poll(results.front().first, 0.7);
    const auto applied = core->apply({.step = results.front().first, .sampled = results.front().second, .completions = over});
    EXPECT_TRUE(applied) << applied.error().to_string();
    results.pop_front();
    for (const RequestUpdate& update : (*applied)->updates) {
      std::vector<TokenId>& outputs = played.outputs[update.id];
      outputs.insert(outputs.end(), update.tokens.begin(), update.tokens.end());
    }
    core->check_invariants();
    if (testing::Test::HasFailure()) return played;
    if (num_added == 120 && !core->has_work() && copies.is_idle() && core->all_blocks_free()) break;
  }
  EXPECT_TRUE(core->all_blocks_free() && !core->has_work()) << "no progress";
  EXPECT_EQ(connector->num_tracked(), 0U);
  connector->ledger().check_invariants();
  played.num_preemptions = core->counters().num_preemptions;
  played.counters = connector->counters();
  played.num_forks = core->counters().num_forks;
  played.num_copied_blocks = core->counters().num_copied_blocks;
  forks.check(played.outputs);
  const OffloadCounters& c = played.counters;
  told(c.num_stored, c.num_loaded, c.num_failed_stores, c.num_failed_loads, c.num_loaded_tokens, c.num_without_slot);
  if (with_connector) offload_record().expect(told.digest());
  return played;
}

TEST(OffloadWholeCore, ConnectorChangesNoToken) {
  std::uint64_t seed = 1;
  for (const bool is_async : {false, true}) {
    for (const std::uint32_t block_size : {kCopyBlock, 2 * kCopyBlock}) {
      for (const std::uint64_t num_blocks : {12U, 200U}) {
        Play run{
            .is_async = is_async,
            .offload = {.cpu_bytes_to_use = num_blocks, .block_size = block_size, .eviction_policy = num_blocks == 12 ? "arc" : "lru"}};
        run.prefix_caching = block_size == kCopyBlock;
        run.offload.join_loads = num_blocks == 12;
        const Played with = play_requests(run, true, ++seed);
        const Played without = play_requests(run, false, seed);
        ASSERT_FALSE(testing::Test::HasFailure()) << "async " << is_async << ", block size " << block_size << ", tier " << num_blocks;
        EXPECT_EQ(with.outputs, without.outputs);
        EXPECT_EQ(with.outputs.size(), 120U);
        EXPECT_GT(with.num_preemptions, 3U) << "the test covers too few cases";
        EXPECT_GT(with.counters.num_stored, 30U);
        EXPECT_GT(with.counters.num_loaded, num_blocks == 12 ? 0U : 30U);
      }
    }
  }
}

TEST(OffloadWholeCore, FailedCopiesChangeNoToken) {
  for (const bool is_async : {false, true}) {
    const Play run{.is_async = is_async, .offload = {.cpu_bytes_to_use = 100}, .failed = 0.25};
    const Played with = play_requests(run, true, 77);
    const Played without = play_requests(run, false, 77);
    EXPECT_EQ(with.outputs, without.outputs);
    EXPECT_GT(with.counters.num_failed_loads, 5U) << "the test covers too few cases";
    EXPECT_GT(with.counters.num_failed_stores, 5U);
  }
}

TEST(OffloadWholeCore, PersistentTierChangesNoToken) {
  for (const bool is_async : {false, true}) {
    for (const std::uint64_t num_blocks : {15U, 200U}) {
      TierContent content;
      Play run{.is_async = is_async, .offload = {.cpu_bytes_to_use = num_blocks, .hit_after_store_completes = true}, .failed = 0.02};
      run.lasting = &content;
      for (std::uint64_t seed = 91; seed < 94; ++seed) {
        const Played with = play_requests(run, true, seed);
        const Played without = play_requests(run, false, seed);
        ASSERT_FALSE(testing::Test::HasFailure()) << "async " << is_async << ", tier " << num_blocks << ", seed " << seed;
        EXPECT_EQ(with.outputs, without.outputs);
        EXPECT_EQ(with.outputs.size(), 120U);
        EXPECT_GT(with.counters.num_stored, 10U) << "the test covers too few cases";
        EXPECT_GT(with.counters.num_loaded, num_blocks == 15 ? 0U : 30U);
      }
    }
  }
}

// Covers full attention and windows that are smaller or larger than a block. The worker checks each entry that it reads.
TEST(OffloadWholeCore, SeveralGroupsChangeNoToken) {
  std::uint64_t seed = 200, num_preemptions = 0, num_failed_loads = 0, num_loaded_small = 0;
  for (const std::vector<std::uint32_t>& windows :
       {std::vector{0U, 6U}, std::vector{9U}, std::vector{0U, 5U, 14U}, std::vector{3U, 3U, 0U}}) {
    for (const bool is_async : {false, true}) {
      for (const std::uint64_t num_blocks : {24U, 400U}) {
        for (const double failed : {0.0, 0.2}) {
          Play run{.is_async = is_async, .windows = windows, .offload = {.cpu_bytes_to_use = num_blocks}, .failed = failed};
          run.offload.join_loads = num_blocks == 24;
          const Played with = play_requests(run, true, ++seed);
          const Played without = play_requests(run, false, seed);
          ASSERT_FALSE(testing::Test::HasFailure()) << windows.size() << " groups, async " << is_async << ", tier " << num_blocks;
          EXPECT_EQ(with.outputs, without.outputs);
          EXPECT_EQ(with.outputs.size(), 120U);
          EXPECT_GT(with.counters.num_stored, 30U) << "the test covers too few cases";
          if (num_blocks == 400) EXPECT_GT(with.counters.num_loaded_tokens, 100U);
          num_loaded_small += num_blocks == 24 ? with.counters.num_loaded : 0;
          num_preemptions += with.num_preemptions;
          num_failed_loads += with.counters.num_failed_loads;
        }
      }
    }
  }
  EXPECT_GT(num_preemptions, 50U) << "the test covers too few cases";
  EXPECT_GT(num_failed_loads, 50U);
  EXPECT_GT(num_loaded_small, 50U);
}

TEST(OffloadWholeCore, PersistentTierServesSeveralGroups) {
  for (const std::vector<std::uint32_t>& windows : {std::vector{0U, 6U}, std::vector{9U}, std::vector{0U, 5U, 14U}}) {
    for (const bool is_async : {false, true}) {
      for (const std::uint64_t num_blocks : {30U, 400U}) {
        TierContent content;
        Play run{.is_async = is_async,
                 .windows = windows,
                 .offload = {.cpu_bytes_to_use = num_blocks, .hit_after_store_completes = true},
                 .failed = 0.02};
        run.lasting = &content;
        for (std::uint64_t seed = 291; seed < 293; ++seed) {
          const Played with = play_requests(run, true, seed);
          const Played without = play_requests(run, false, seed);
          ASSERT_FALSE(testing::Test::HasFailure()) << windows.size() << " groups, async " << is_async << ", seed " << seed;
          EXPECT_EQ(with.outputs, without.outputs);
          EXPECT_GT(with.counters.num_stored, 10U) << "the test covers too few cases";
          EXPECT_GT(with.counters.num_loaded, num_blocks == 30 ? 0U : 30U);
        }
      }
    }
  }
}

// Children share blocks that were computed, loaded, or not stored yet when their last holder overwrites them.
TEST(OffloadWholeCore, ForksChangeNoToken) {
  std::uint64_t seed = 500, num_forks = 0, num_copied_blocks = 0, num_preemptions = 0, num_loaded = 0, num_failed_loads = 0;
  for (const std::vector<std::uint32_t>& windows : {std::vector{0U}, std::vector{0U}, std::vector{0U, 6U}, std::vector{3U, 14U, 0U}}) {
    for (const bool is_async : {false, true}) {
      for (const bool is_lasting : {false, true}) {
        for (const double failed : {0.0, 0.2}) {
          TierContent content;
          Play run{.is_async = is_async,
                   .windows = windows,
                   .offload = {.cpu_bytes_to_use = seed % 2 == 0 ? 30U : 300U, .hit_after_store_completes = is_lasting},
                   .failed = failed,
                   .forks = 0.2};
          if (is_lasting) run.lasting = &content;
          for (int round = 0; round < (is_lasting ? 2 : 1); ++round) {
            const Played with = play_requests(run, true, ++seed);
            run.forks = 0.0;
            const Played without = play_requests(run, false, seed);
            run.forks = 0.2;
            ASSERT_FALSE(testing::Test::HasFailure()) << windows.size() << " groups, async " << is_async << ", seed " << seed;
            EXPECT_EQ(with.outputs, without.outputs);
            num_forks += with.num_forks;
            num_copied_blocks += with.num_copied_blocks;
            num_preemptions += with.num_preemptions;
            num_loaded += with.counters.num_loaded;
            num_failed_loads += with.counters.num_failed_loads;
          }
        }
      }
    }
  }
  EXPECT_GT(num_forks, 1000U) << "the test covers too few cases";
  EXPECT_GT(num_copied_blocks, 200U);
  EXPECT_GT(num_preemptions, 100U);
  EXPECT_GT(num_loaded, 500U);
  EXPECT_GT(num_failed_loads, 50U);
}

}  // namespace
}  // namespace quire::test
