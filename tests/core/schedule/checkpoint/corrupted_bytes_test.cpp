// Reads checkpoints with changed bytes and a valid checksum. The result must be an error, or a core with consistent state that accepts any
// further call. A rule that is missing in soundness.cpp and invariants.cpp stops the program here.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/schedule/checkpoint/sealed.h"
#include "core/schedule/checkpoint/twin_run.h"
#include "core/schedule/core_driver.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

TEST(CorruptedBytes, GiveAWorkingCoreOrAnErrorWhenManyChange) {
  std::uint32_t num_refused = 0, num_taken = 0;
  Random random(11);
  for (std::uint64_t seed = 0; seed < rounds_of(300); ++seed) {
    TwinRun run(seed, 150);
    TwinsMet met;
    run.run(met);
    const std::vector<std::uint8_t> good = run.core().checkpoint();
    ASSERT_TRUE(run.restored(good).has_value());
    for (std::uint64_t i = 0; i < 400; ++i) {
      std::vector<std::uint8_t> bytes = good;
      if (random.chance(0.1)) bytes.resize(random.between(32, bytes.size()));
      for (std::uint64_t changes = random.below(4); changes > 0; --changes) {
        std::uint8_t& byte = bytes[random.between(12, bytes.size() - 9)];
        byte = static_cast<std::uint8_t>(random.chance(0.5) ? random.next() : byte ^ (1U << random.below(8)));
      }
      seal(bytes);
      auto restored = run.restored(bytes);
      ++(restored ? num_taken : num_refused);
      if (!restored) ASSERT_EQ(restored.error().field, "checkpoint");
      if (!restored) continue;
      (*restored)->check_invariants();
      run.go_on(std::move(*restored), i, 60);
    }
  }
  EXPECT_GT(num_refused, rounds_of(25'000));
  EXPECT_GT(num_taken, rounds_of(5'000)) << "a changed token is still a valid token";
}

// Gives a token to each request that samples, until a result is refused.
void answer_steps(Core& core, int num_steps) {
  for (int i = 0; i < num_steps; ++i) {
    const StepPlan& plan = core.num_outstanding_plans() > 0 ? core.outstanding_plan(0) : core.schedule();
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& one : plan.scheduled)
      if (one.samples) sampled.push_back({one.id, 5});
    if (!core.apply({.step = plan.step, .sampled = sampled})) return;
    core.check_invariants();
  }
}

TEST(CorruptedBytes, GiveAWorkingCoreOrAnErrorWhenOneChanges) {
  CoreConfig config = async_config(16);
  config.swap = {.num_swap_slots = 4, .swap_choice = SwapChoice::always};
  CoreDriver d(config);
  for (std::uint64_t id = 1; id < 6; ++id) d.add(id, 12, 8);
  d.plan();
  d.plan();
  d.apply();
  const std::vector<std::uint8_t> good = d.core->checkpoint();
  for (std::size_t at = 12; at + kSumBytes < good.size(); ++at) {
    for (const std::uint8_t value : {0, 1, 0x7F, 0x80, 0xFF}) {
      std::vector<std::uint8_t> bytes = good;
      bytes[at] = value;
      seal(bytes);
      const auto restored = Core::restore(config, {}, bytes);
      if (!restored) continue;
      (*restored)->check_invariants();
      answer_steps(**restored, 12);
    }
  }
}

}  // namespace
}  // namespace quire::test
