// Makes seeded random runs and compares them with the naive scheduler, with a worker that detects every wrong block, and with themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "core/kv/hash/hash_function.h"
#include "core/schedule/harness.h"
#include "core/schedule/naive_kv.h"
#include "core/schedule/naive_scheduler.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// Draws a configuration from the seed: tiny pools, few slots, all switches.
CoreConfig random_config(Random& random) {
  CoreConfig config;
  config.block_size = static_cast<std::uint32_t>(random.between(1, 6));
  config.scheduler.max_model_len = static_cast<std::uint32_t>(random.between(24, 64));
  use_one_group(config, 2 + (config.scheduler.max_model_len * static_cast<std::uint32_t>(random.between(10, 40)) / 10) / config.block_size);
  config.prefix_cache.enable_prefix_caching = random.chance(0.7);
  config.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(1, 12));
  config.scheduler.enable_chunked_prefill = random.chance(0.7);
  config.scheduler.max_num_batched_tokens =
      static_cast<std::uint32_t>(config.scheduler.enable_chunked_prefill ? random.between(1, 40) : random.between(64, 100));
  config.scheduler.long_prefill_token_threshold = random.chance(0.3) ? static_cast<std::uint32_t>(random.between(1, 12)) : 0;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.scheduler.policy = random.chance(0.5) ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
  config.scheduler.async_scheduling = random.chance(0.5);
  config.fixes.forget_unwritten_blocks = true;  // the worker detects every wrong block
  return config;
}

std::vector<NaiveScheduler::Row> rows_of(const StepPlan& plan, const Harness& h) {
  std::vector<NaiveScheduler::Row> rows;
  for (const ScheduledRequest& s : plan.scheduled)
    rows.push_back({s.id.value, s.num_computed_tokens, s.num_tokens, s.samples, values(h.worker.table(s.slot))});
  for (const BlockCopy& copy : plan.copies)
    std::ranges::find(rows, copy.id.value, &NaiveScheduler::Row::id)->copies.push_back({copy.source.value, copy.destination.value});
  return rows;
}

template <class Range>
std::vector<std::uint64_t> ids_of(const Range& range) {
  std::vector<std::uint64_t> ids;
  for (const auto& item : range)
    if constexpr (requires { item.id; })
      ids.push_back(item.id.value);
    else
      ids.push_back(item.value);
  return ids;
}

struct Met {
  std::uint64_t num_preemptions = 0, num_steps_with_pins = 0, num_trees = 0, num_forks = 0, num_copies = 0;
  void add(const Met& other) {
    num_preemptions += other.num_preemptions;
    num_steps_with_pins += other.num_steps_with_pins;
    num_trees += other.num_trees;
    num_forks += other.num_forks;
    num_copies += other.num_copies;
  }
};

// Gives some runs enough blocks and tokens that children run together with their parents and diverge from them.
void make_room_for_forks(CoreConfig& config, Random& random) {
  config.kv.num_blocks *= static_cast<std::uint32_t>(random.between(1, 4));
  config.scheduler.max_num_seqs += 4;
  config.scheduler.max_num_batched_tokens += static_cast<std::uint32_t>(random.below(40));
}

// Forks a request that is in progress, at its current position or earlier, so that trees grow.
class RandomForks {
 public:
  explicit RandomForks(Random& random) : random_(random) {}

  // Returns null when no request can be forked or the request is at its end.
  std::optional<std::pair<std::uint64_t, ForkRequest>> draw(const Harness& h, std::uint64_t child) {
    if (h.alive.empty()) return std::nullopt;
    // Prefers a parent that has computed tokens and may write to the shared blocks.
    RequestId parent{};
    RequestView view;
    for (int tries = 0; tries < 8 && view.num_computed_tokens == 0; ++tries) {
      parent = std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random_.below(h.alive.size())))->first;
      view = *h.core->view(parent);
    }
    ForkRequest fork{.id = RequestId{child}, .arrival_time = static_cast<double>(child)};
    if (random_.chance(0.3)) fork.num_tokens = static_cast<std::uint32_t>(random_.between(view.num_prompt_tokens, view.tokens.size()));
    if (random_.chance(0.3)) fork.max_tokens = static_cast<std::uint32_t>(random_.between(1, view.max_tokens + 8));
    if (random_.chance(0.3)) fork.next_token = static_cast<TokenId>(random_.below(kVocabulary));
    const std::size_t num_tokens = (fork.num_tokens == 0 ? view.tokens.size() : fork.num_tokens) + (fork.next_token ? 1 : 0);
    const std::uint32_t room = h.config.scheduler.max_model_len - view.num_prompt_tokens;
    if (num_tokens - view.num_prompt_tokens >= std::min(room, fork.max_tokens.value_or(view.max_tokens))) return std::nullopt;
    return std::pair(parent.value, fork);
  }
  // Returns whether this is the first fork of its tree.
  bool add_fork(std::uint64_t parent, std::uint64_t child) {
    const std::uint64_t root = roots_.contains(parent) ? roots_.at(parent) : parent;
    roots_[child] = root;
    return trees_.insert(root).second;
  }

 private:
  Random& random_;
  std::map<std::uint64_t, std::uint64_t> roots_;
  std::set<std::uint64_t> trees_;
};

// Forks a random request in the core and, through `twin`, in the model.
template <class Twin>
void fork_one(Harness& h, RandomForks& forks_of_run, Random& random, std::uint64_t& next_id, Met& met, Twin&& twin) {
  const auto drawn = forks_of_run.draw(h, next_id);
  if (!drawn) return;
  const auto forked = h.fork(RequestId{drawn->first}, drawn->second, random.next());
  ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
  twin(drawn->first, drawn->second);
  met.num_trees += forks_of_run.add_fork(drawn->first, next_id++) ? 1 : 0;
}

void tag(RequestTags& tags, Random& random) {
  if (random.chance(0.7)) tags.job = fmt::format("job{}", random.below(6));
  tags.is_last_step = random.chance(0.1);
  if (random.chance(0.9)) tags.tool = fmt::format("tool{}", random.below(3));
}

Met compare_with_naive(std::uint64_t seed, CoreConfig config, Random& random, double forks_per_step = 0.0) {
  const bool by_job = config.scheduler.policy == SchedulingPolicy::continuum;
  Met met;
  Harness h(config);
  RandomForks forks_of_run(random);
  NaiveScheduler naive(config);
  const std::size_t num_in_flight = config.scheduler.async_scheduling ? random.between(1, 2) : 1;
  const bool ties = config.scheduler.policy == SchedulingPolicy::priority && random.chance(0.5);
  if (config.scheduler.policy != SchedulingPolicy::fcfs) h.worker.trust_nothing();  // see forget_unwritten_blocks
  std::uint64_t next_id = 0;
  for (int step = 0; step < (ties ? 3000 : 400) || (naive.has_work() && !ties); ++step) {
    if (by_job) h.now += 0.001 * static_cast<double>(random.below(800));
    while (step < 300 && random.chance(0.4)) {
      auto request = random_request(random, RequestId{next_id++}, config.scheduler.max_model_len);
      if (ties) request->request.arrival_time = static_cast<double>(random.below(4));
      if (by_job) tag(request->tags, random);
      request->request.tags = &request->tags;
      naive.add(request->request, h.now);
      h.add(std::move(request));
    }
    while (step < 300 && forks_per_step > 0.0 && random.chance(forks_per_step))
      fork_one(h, forks_of_run, random, next_id, met, [&](std::uint64_t parent, const ForkRequest& child) { naive.fork(parent, child); });
    if (random.chance(0.05) && next_id > 0) {
      const std::uint64_t id = random.below(next_id);
      if (naive.knows(id)) {
        naive.finish(id, RequestStatus::finished_aborted, h.now);
        h.finish(RequestId{id});
      }
    }
    const NaiveScheduler::Step expected = naive.schedule(h.now);
    const StepPlan& plan = h.plan();
    EXPECT_EQ(rows_of(plan, h), expected.rows) << "seed " << seed << ", step " << step;
    EXPECT_EQ(ids_of(plan.admitted), expected.admitted);
    EXPECT_EQ(ids_of(plan.preempted), expected.preempted);
    if (h.results.size() < num_in_flight) continue;
    const StepOutcome& outcome = h.apply_oldest();
    for (const RequestUpdate& update : outcome.updates)
      EXPECT_EQ(naive.take_token(update.id.value, update.tokens[0], h.now), update.finished);
    const CoreCounters counters = h.core->counters();
    EXPECT_EQ(counters.num_free_blocks, naive.num_free_blocks());
    EXPECT_EQ(counters.num_pinned, naive.num_pinned());
    met.num_steps_with_pins += counters.num_pinned > 0 ? 1 : 0;
    if (testing::Test::HasFailure()) return met;
  }
  while (!h.results.empty()) h.apply_oldest();
  h.core->end_pins();
  h.core->check_invariants();
  EXPECT_TRUE(h.core->all_blocks_free() || ties);
  met.num_preemptions = h.core->counters().num_preemptions;
  met.num_forks = h.core->counters().num_forks;
  met.num_copies = h.core->counters().num_copied_blocks;
  return met;
}

TEST(SchedulerModel, MakesTheDecisionsOfTheNaiveScheduler) {
  std::uint64_t num_preemptions = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    CoreConfig config = random_config(random);
    config.fixes.forget_unwritten_blocks = false;
    num_preemptions += compare_with_naive(seed, config, random).num_preemptions;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(num_preemptions, 1000U) << "the run must contain enough such cases";
}

TEST(SchedulerModel, MakesTheDecisionsOfTheNaiveSchedulerUnderContinuumWithAnyFixes) {
  for (std::uint32_t fixes = 0; fixes < 8; ++fixes) {
    Met all;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed);
      CoreConfig config = random_config(random);
      config.fixes.forget_unwritten_blocks = false;
      config.scheduler.policy = SchedulingPolicy::continuum;
      config.continuum.pins_give_way = (fixes & 1U) != 0;
      config.continuum.pins_end_with_job = (fixes & 2U) != 0;
      config.continuum.jobless_in_order = (fixes & 4U) != 0;
      const Met met = compare_with_naive(seed, config, random);
      all.num_preemptions += met.num_preemptions;
      all.num_steps_with_pins += met.num_steps_with_pins;
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", fixes " << fixes;
    }
    EXPECT_GT(all.num_preemptions, 100U) << "the run must contain enough such cases";
    EXPECT_GT(all.num_steps_with_pins, 500U);
  }
}

TEST(SchedulerModel, MakesTheDecisionsOfTheNaiveSchedulerWithForks) {
  Met all;
  for (std::uint64_t seed = 0; all.num_trees < rounds_of(5000) && seed < 400; ++seed) {
    Random random(seed);
    CoreConfig config = random_config(random);
    config.fixes.forget_unwritten_blocks = false;
    make_room_for_forks(config, random);
    all.add(compare_with_naive(seed, config, random, 0.35));
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GE(all.num_trees, rounds_of(5000));
  EXPECT_GT(all.num_forks, all.num_trees);
  EXPECT_GT(all.num_copies, rounds_of(2000)) << "the run must contain enough such cases";
  EXPECT_GT(all.num_preemptions, rounds_of(1000));
}

// Adds a group with a window and the same block size. The window is shorter than a block or spans several blocks.
void use_windows(Harness& h, std::uint32_t num_blocks, Random& random) {
  const std::vector<std::uint32_t> windows{0, static_cast<std::uint32_t>(random.between(1, 20))};
  CoreConfig config = h.config;
  SlidingWindowSpec window;
  window.block_size = config.block_size;
  window.sliding_window = windows[1];
  config.kv.groups.push_back({.layer_names = {}, .spec = window, .layer_specs = {}});
  config.kv.num_blocks = 2 * num_blocks;
  h = Harness(config);
  h.worker.use_windows(windows);
}

// Runs with up to two outstanding plans and finishes requests from outside between them. With forks, each child must output what a new
// request with the same initial tokens and seed outputs.
Met run_with_plans_in_flight(std::uint64_t seed, double forks = 0.0) {
  Random random(seed);
  CoreConfig config = random_config(random);
  if (forks > 0.0) make_room_for_forks(config, random);
  Harness h(config);
  RandomForks forks_of_run(random);
  Met met;
  if (forks > 0.0 && random.chance(0.3)) use_windows(h, h.config.kv.num_blocks, random);
  std::uint64_t next_id = 0;
  for (int event = 0; event < 800; ++event) {
    if (forks > 0.0 && random.chance(forks)) fork_one(h, forks_of_run, random, next_id, met, [](std::uint64_t, const ForkRequest&) {});
    const double dice = random.unit();
    if (dice < 0.3)
      h.add(random_request(random, RequestId{next_id++}, h.config.scheduler.max_model_len));
    else if (dice < 0.35 && !h.alive.empty())
      h.finish(std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random.below(h.alive.size())))->first);
    else if (dice < 0.7 && h.results.size() < h.config.limits.max_outstanding_plans)
      h.plan();
    else if (!h.results.empty())
      h.apply_oldest();
    EXPECT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
    if (testing::Test::HasFailure()) return met;
  }
  while (!h.results.empty()) h.apply_oldest();
  h.run_to_end();
  met.num_preemptions = h.core->counters().num_preemptions;
  met.num_forks = h.core->counters().num_forks;
  met.num_copies = h.worker.num_copies;
  return met;
}

TEST(SchedulerModel, StaysConsistentWithPlansInFlight) {
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    run_with_plans_in_flight(seed);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(SchedulerModel, GivesAChildTheOutputsOfANewRequestWithItsTokens) {
  Met all;
  for (std::uint64_t seed = 1000; all.num_trees < rounds_of(5000) && seed < 1400; ++seed) {
    all.add(run_with_plans_in_flight(seed, 0.1));
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GE(all.num_trees, rounds_of(5000));
  EXPECT_GT(all.num_copies, rounds_of(2000)) << "the run must contain enough such cases";
  EXPECT_GT(all.num_preemptions, rounds_of(1000));
}

TEST(SchedulerModel, FinishesEveryRequestThroughHundredsOfPreemptions) {
  CoreConfig config = small_config(21);
  config.scheduler.max_num_seqs = 8;
  config.scheduler.reserve_full_isl = false;
  for (const bool caching : {true, false}) {
    for (const std::uint32_t budget : {3U, 16U, 2048U}) {
      config.prefix_cache.enable_prefix_caching = caching;
      config.scheduler.max_num_batched_tokens = budget;
      Random random(budget);
      Harness h(config);
      for (std::uint64_t id = 0; id < 300; ++id) h.add(random_request(random, RequestId{id}, 80));
      h.run_to_end();
      ASSERT_FALSE(testing::Test::HasFailure()) << "caching " << caching << ", budget " << budget;
      EXPECT_GT(h.core->counters().num_preemptions, 100U) << "caching " << caching << ", budget " << budget;
    }
  }
}

// This hash function returns equal hashes, so hits are wrong on purpose. The accounts must still balance and every request must finish.
class EqualHashes final : public HashFunction {
 public:
  BlockHash hash(const BlockHash*, const HashInput&) override { return {}; }
};

TEST(SchedulerModel, KeepsItsAccountsWhenAllHashesAreEqual) {
  for (std::uint64_t seed = 200; seed < 220; ++seed) {
    Random random(seed);
    CoreConfig config = random_config(random);
    config.prefix_cache.enable_prefix_caching = true;
    EqualHashes hashes;
    Harness h(config, {.hash = &hashes});
    h.worker.trust_nothing();
    for (std::uint64_t id = 0; id < 100; ++id) h.add(random_request(random, RequestId{id}, config.scheduler.max_model_len));
    h.run_to_end();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Returns the content of all plans as text.
std::string transcript(std::uint64_t seed) {
  Random random(seed);
  Harness h(random_config(random));
  std::string text;
  for (std::uint64_t id = 0; id < 60; ++id) h.add(random_request(random, RequestId{id}, h.config.scheduler.max_model_len));
  while (h.core->has_work()) {
    const StepPlan& plan = h.plan();
    text += fmt::format("step {}: {} tokens;", plan.step.value, plan.num_scheduled_tokens);
    for (Slot slot : plan.released) text += fmt::format(" -{}", slot.value);
    for (const AdmittedRequest& a : plan.admitted) text += fmt::format(" +{}@{}({})", a.id.value, a.slot.value, fmt::join(a.tokens, ","));
    for (const BlockTableDelta& d : plan.table_deltas)
      text += fmt::format(" {}:{}[{}]", d.slot.value, static_cast<int>(d.update), fmt::join(values(d.blocks), ","));
    for (const ScheduledRequest& s : plan.scheduled)
      text += fmt::format(" {}@{}:{}+{}{}", s.id.value, s.slot.value, s.num_computed_tokens, s.num_tokens, s.samples ? "!" : "");
    h.apply_oldest();
  }
  return text;
}

TEST(SchedulerModel, MakesEqualPlansForEqualCalls) {
  for (std::uint64_t seed = 300; seed < 305; ++seed) EXPECT_EQ(transcript(seed), transcript(seed));
}

}  // namespace
}  // namespace quire::test
