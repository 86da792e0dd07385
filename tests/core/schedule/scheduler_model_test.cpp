// Seeded random runs: against the naive scheduler, against a worker that sees every wrong block, and against themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/kv/hash_function.h"
#include "core/schedule/harness.h"
#include "core/schedule/naive_kv.h"
#include "core/schedule/naive_scheduler.h"

namespace quire {
namespace {

using test::Harness;
using test::NaiveScheduler;
using test::random_request;
using test::small_config;

// A configuration drawn from the seed: tiny pools, few slots, all switches.
CoreConfig random_config(Random& random) {
  CoreConfig config;
  config.block_size = static_cast<std::uint32_t>(random.between(1, 6));
  config.scheduler.max_model_len = static_cast<std::uint32_t>(random.between(24, 64));
  test::use_one_group(config,
                      2 + (config.scheduler.max_model_len * static_cast<std::uint32_t>(random.between(10, 40)) / 10) / config.block_size);
  config.enable_prefix_caching = random.chance(0.7);
  config.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(1, 12));
  config.scheduler.enable_chunked_prefill = random.chance(0.7);
  config.scheduler.max_num_batched_tokens =
      static_cast<std::uint32_t>(config.scheduler.enable_chunked_prefill ? random.between(1, 40) : random.between(64, 100));
  config.scheduler.long_prefill_token_threshold = random.chance(0.3) ? static_cast<std::uint32_t>(random.between(1, 12)) : 0;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.scheduler.policy = random.chance(0.5) ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
  config.scheduler.async_scheduling = random.chance(0.5);
  config.forget_unwritten_blocks = true;  // the worker sees every wrong block
  return config;
}

std::vector<NaiveScheduler::Row> rows_of(const StepPlan& plan, const Harness& h) {
  std::vector<NaiveScheduler::Row> rows;
  for (const ScheduledRequest& s : plan.scheduled)
    rows.push_back({s.id.value, s.num_computed_tokens, s.num_tokens, s.samples, test::values(h.worker.table(s.slot))});
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
  std::uint64_t num_preemptions = 0, num_steps_with_pins = 0;
};

void tag(RequestTags& tags, Random& random) {
  if (random.chance(0.7)) tags.job = fmt::format("job{}", random.below(6));
  tags.is_last_step = random.chance(0.1);
  if (random.chance(0.9)) tags.tool = fmt::format("tool{}", random.below(3));
}

Met compare_with_naive(std::uint64_t seed, CoreConfig config, Random& random) {
  const bool by_job = config.scheduler.policy == SchedulingPolicy::continuum;
  Met met;
  Harness h(config);
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
  return met;
}

TEST(SchedulerModel, DecidesLikeTheNaiveOne) {
  std::uint64_t num_preemptions = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    CoreConfig config = random_config(random);
    config.forget_unwritten_blocks = false;
    num_preemptions += compare_with_naive(seed, config, random).num_preemptions;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(num_preemptions, 1000U) << "the run must meet what it is about";
}

TEST(SchedulerModel, ContinuumDecidesLikeTheNaiveOneWithEverySetOfCures) {
  for (std::uint32_t cures = 0; cures < 8; ++cures) {
    Met all;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed);
      CoreConfig config = random_config(random);
      config.forget_unwritten_blocks = false;
      config.scheduler.policy = SchedulingPolicy::continuum;
      config.continuum.pins_give_way = (cures & 1U) != 0;
      config.continuum.pins_end_with_job = (cures & 2U) != 0;
      config.continuum.jobless_in_order = (cures & 4U) != 0;
      const Met met = compare_with_naive(seed, config, random);
      all.num_preemptions += met.num_preemptions;
      all.num_steps_with_pins += met.num_steps_with_pins;
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", cures " << cures;
    }
    EXPECT_GT(all.num_preemptions, 100U) << "the run must meet what it is about";
    EXPECT_GT(all.num_steps_with_pins, 500U);
  }
}

// Up to two plans outstanding, and finishes from outside between them.
void run_with_plans_in_flight(std::uint64_t seed) {
  Random random(seed);
  Harness h(random_config(random));
  std::uint64_t next_id = 0;
  for (int event = 0; event < 800; ++event) {
    const double dice = random.unit();
    if (dice < 0.3)
      h.add(random_request(random, RequestId{next_id++}, h.config.scheduler.max_model_len));
    else if (dice < 0.35 && !h.alive.empty())
      h.finish(std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random.below(h.alive.size())))->first);
    else if (dice < 0.7 && h.results.size() < h.config.max_outstanding_plans)
      h.plan();
    else if (!h.results.empty())
      h.apply_oldest();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
  }
  while (!h.results.empty()) h.apply_oldest();
  h.run_to_end();
}

TEST(SchedulerModel, StaysConsistentWithPlansInFlight) {
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    run_with_plans_in_flight(seed);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(SchedulerModel, FinishesEveryRequestThroughHundredsOfPreemptions) {
  CoreConfig config = small_config(21);
  config.scheduler.max_num_seqs = 8;
  config.scheduler.reserve_full_isl = false;
  for (const bool caching : {true, false}) {
    for (const std::uint32_t budget : {3U, 16U, 2048U}) {
      config.enable_prefix_caching = caching;
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

// A hasher whose names say nothing: hits are wrong by intent, but the books must balance and everyone must finish.
class EqualNames final : public HashFunction {
 public:
  [[nodiscard]] std::span<const std::uint8_t> root() const override { return {}; }
  BlockHash hash(const BlockHash*, const HashInput&) override { return {}; }
};

TEST(SchedulerModel, KeepsItsBooksWhenAllNamesAreEqual) {
  for (std::uint64_t seed = 200; seed < 220; ++seed) {
    Random random(seed);
    CoreConfig config = random_config(random);
    config.enable_prefix_caching = true;
    EqualNames names;
    Harness h(config, {.hash = &names});
    h.worker.trust_nothing();
    for (std::uint64_t id = 0; id < 100; ++id) h.add(random_request(random, RequestId{id}, config.scheduler.max_model_len));
    h.run_to_end();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Everything a plan says, in words.
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
      text += fmt::format(" {}:{}[{}]", d.slot.value, static_cast<int>(d.update), fmt::join(test::values(d.blocks), ","));
    for (const ScheduledRequest& s : plan.scheduled)
      text += fmt::format(" {}@{}:{}+{}{}", s.id.value, s.slot.value, s.num_computed_tokens, s.num_tokens, s.samples ? "!" : "");
    h.apply_oldest();
  }
  return text;
}

TEST(SchedulerModel, EqualCallsGiveEqualPlans) {
  for (std::uint64_t seed = 300; seed < 305; ++seed) EXPECT_EQ(transcript(seed), transcript(seed));
}

}  // namespace
}  // namespace quire
