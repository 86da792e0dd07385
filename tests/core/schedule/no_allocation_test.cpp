// Steps that admit nothing new allocate nothing.
#include <gtest/gtest.h>

#include <vector>

#include "core/schedule/harness.h"
#include "support/count_allocations.h"

namespace quire {
namespace {

void decode(Core& core, int num_steps, std::vector<SampledToken>& sampled) {
  for (int step = 0; step < num_steps; ++step) {
    const StepPlan& plan = core.schedule();
    sampled.clear();
    for (const ScheduledRequest& s : plan.scheduled) {
      if (s.samples) {
        sampled.push_back({s.id, static_cast<TokenId>(step % 97)});
      }
    }
    ASSERT_TRUE(core.apply({plan.step, sampled}));
  }
}

TEST(NoAllocation, TenThousandDecodeSteps) {
  if (!QUIRE_COUNTS_ALLOCATIONS) {
    GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  }
  CoreConfig config;
  config.scheduler.max_num_seqs = 16;
  config.scheduler.max_model_len = 16384;
  test::use_one_group(config, 16 * 1024 + 1);
  auto core = Core::create(config).value();
  const std::vector<TokenId> prompt(100, 7);
  for (std::uint64_t id = 0; id < 16; ++id) {
    NewRequest request;
    request.id = RequestId{id};
    request.prompt = prompt;
    request.max_tokens = 16000;
    ASSERT_TRUE(core->add(request));
  }
  std::vector<SampledToken> sampled;
  sampled.reserve(16);
  decode(*core, 4, sampled);
  ASSERT_EQ(core->counters().num_running, 16U);
  const std::uint64_t before = test::num_allocations;
  decode(*core, 10000, sampled);
  EXPECT_EQ(test::num_allocations - before, 0U);
  EXPECT_EQ(sampled.size(), 16U);
}

}  // namespace
}  // namespace quire
