// Runs random rounds with pools so small that requests are preempted and swapped frequently. Each request must read what it wrote and
// output what it outputs alone. Each slot has one owner, every request finishes, and no block or slot leaks.
#include <gtest/gtest.h>

#include "core/schedule/moves/naive_fences.h"
#include "core/schedule/moves/swap_book.h"
#include "core/schedule/moves/swap_mover.h"
#include "support/decision_record.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

struct SwapsMet {
  std::uint64_t out = 0, in = 0, lost = 0, no_place = 0, failed = 0, fenced = 0, preempted = 0, stops = 0, forks = 0, kept = 0;
};

CoreConfig random_swap_config(Random& random) {
  CoreConfig config = small_config(random.chance(0.5) ? 22 : 30);
  config.scheduler.async_scheduling = random.chance(0.7);
  config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
  config.scheduler.reserve_full_isl = random.chance(0.3);
  config.scheduler.max_num_batched_tokens = random.chance(0.5) ? 32 : 9;
  config.prefix_cache.enable_prefix_caching = random.chance(0.8);
  config.fixes.forget_unwritten_blocks = true;
  config.fixes.discard_only_in_flight = true;
  config.fixes.reserve_windows_only = random.chance(0.5);
  config.fixes.loaded_give_way = random.chance(0.5);
  if (random.chance(0.3)) config.scheduler.policy = SchedulingPolicy::priority;
  config.swap.swap_choice = SwapChoice::always;
  config.swap.num_swap_slots = static_cast<std::uint32_t>(random.between(1, 60));
  if (random.chance(0.2)) config.limits.max_open_transfers = static_cast<std::uint32_t>(random.between(1, 3));
  if (random.chance(0.3)) config.pressure = {.admission_watermark = 0.1, .pressure_high = 0.9, .pressure_low = 0.6};
  config.pressure.pressure_preempts = config.pressure.pressure_high > 0.0 && random.chance(0.5);
  return config;
}

void use_swap_windows(CoreConfig& config, Random& random, std::vector<std::uint32_t>& windows) {
  SlidingWindowSpec window;
  window.block_size = config.block_size;
  window.sliding_window = static_cast<std::uint32_t>(random.between(3, 20));
  config.kv.groups.push_back({.layer_names = {}, .spec = window, .layer_specs = {}});
  config.kv.num_blocks = 50;
  windows = {0, window.sliding_window};
}

void fork_random_request(Harness& h, Random& random, std::uint64_t& next_id) {
  const auto parent = std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random.below(h.alive.size())));
  ForkRequest child;
  child.id = RequestId{next_id};
  next_id += h.fork(parent->first, child, 1 + random.below(100)).has_value() ? 1 : 0;
}

void drain(Harness& h, SwapMover& mover) {
  for (int left = 20000; h.core->has_work() || !h.results.empty() || h.core->counters().num_awaiting_transfers > 0; --left) {
    ASSERT_GT(left, 0) << "no progress";
    h.step();
    if (testing::Test::HasFailure()) return;
  }
  mover.check_places();
  EXPECT_EQ(h.core->counters().num_used_swap_slots, 0U);
  h.run_to_end();
}

DecisionRecord& swap_record() {
  static DecisionRecord record("tests/golden/decisions_swap.txt");
  return record;
}

void run_swapping(std::uint64_t seed, double failed, SwapsMet& met) {
  Random random(seed);
  CoreConfig config = random_swap_config(random);
  std::vector<std::uint32_t> windows = {0};
  if (random.chance(0.25)) use_swap_windows(config, random, windows);
  SwapBook book;
  Harness h(config, {.events = &book});
  book.core = h.core.get();
  h.worker.use_windows(windows);
  h.check_outputs = config.scheduler.policy != SchedulingPolicy::priority || config.fixes.forget_unwritten_blocks;
  SwapMover mover(h, {.late = random.unit() * 0.95, .failed = failed}, seed);
  NaiveFences fences(h);
  h.move = [&, move = h.move](const StepPlan& plan) {
    book.check(plan);
    fences.check(plan);
    move(plan);
    fences.note_ends();
  };
  std::uint64_t next_id = 0;
  const bool resets = random.chance(0.2);
  for (int event = 0; event < 500; ++event) {
    const double dice = random.unit();
    if (dice < 0.2)
      h.add(random_request(random, RequestId{next_id++}, config.scheduler.max_model_len));
    else if (dice < 0.23 && !h.alive.empty())
      h.finish(std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random.below(h.alive.size())))->first);
    else if (dice < 0.26 && !h.alive.empty())
      fork_random_request(h, random, next_id);
    else if (dice < 0.27 && resets && h.results.empty())
      (void)h.core->reset_prefix_cache(true);
    else if (dice < 0.65 && h.results.size() < config.limits.max_outstanding_plans)
      h.plan();
    else if (!h.results.empty())
      h.apply_oldest();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
  }
  while (!h.results.empty()) h.apply_oldest();
  drain(h, mover);
  swap_record().expect(h.told.digest());
  const CoreCounters counters = h.core->counters();
  met.out += counters.num_swapped_out;
  met.in += counters.num_swapped_in;
  met.lost += counters.num_swaps_lost;
  met.no_place += counters.num_swaps_no_slot;
  met.preempted += counters.num_preemptions;
  met.stops += counters.num_admission_stops;
  met.forks += counters.num_forks;
  met.failed += mover.num_failed;
  met.fenced += mover.num_fenced;
}

TEST(SwapModel, ReadsWhatTheRequestWrote) {
  SwapsMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(60); ++seed) {
    run_swapping(seed, 0.0, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.out, rounds_of(600)) << "too few swaps";
  EXPECT_GT(met.in, rounds_of(400));
  EXPECT_GT(met.lost, rounds_of(50));
  EXPECT_GT(met.no_place, rounds_of(200));
  EXPECT_GT(met.fenced, rounds_of(200));
  EXPECT_GT(met.stops, rounds_of(50));
  EXPECT_GT(met.forks, rounds_of(100));
  EXPECT_EQ(met.failed, 0U);
}

TEST(SwapModel, RecomputesTokensWhoseTransferFailed) {
  SwapsMet met;
  for (std::uint64_t seed = 1000; seed < 1000 + rounds_of(30); ++seed) {
    run_swapping(seed, seed % 3 == 0 ? 1.0 : 0.3, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.failed, rounds_of(150)) << "too few failed transfers";
  EXPECT_GT(met.lost, rounds_of(100));
  EXPECT_GT(met.in, rounds_of(30));
}

}  // namespace
}  // namespace quire::test
