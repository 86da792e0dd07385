// Tests PrefixCacheOptions::slru_share: prompts that are read once evict no conversation, and what is kept is bounded.
#include <cmath>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kNumBlocks = 101;  // one of them is the null block

CoreConfig slru_config(double slru_share) {
  CoreConfig config = sync_config(kNumBlocks);
  config.scheduler.max_model_len = 400;
  config.scheduler.max_num_batched_tokens = 400;
  config.prefix_cache.slru_share = slru_share;
  return config;
}

// Runs a request to its end and returns how many of its prompt tokens were cached.
std::uint32_t run(CoreDriver& d, std::uint64_t id, const Tokens& prompt) {
  d.add(CoreDriver::request(id, prompt, 1));
  const StepPlan& plan = d.plan();
  EXPECT_EQ(plan.scheduled.size(), 1U);
  const std::uint32_t num_cached = plan.scheduled.empty() ? 0 : plan.scheduled.front().num_computed_tokens;
  d.apply();
  for (int i = 0; i < 5 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  return num_cached;
}

// Two turns of a conversation, then `num_documents` of 100 tokens each, then the third turn. Returns its cached tokens.
std::uint32_t cached_after_sweep(double slru_share, std::uint64_t num_documents) {
  CoreDriver d(slru_config(slru_share));
  Tokens chat = CoreDriver::prompt(1, 100);
  run(d, 1, chat);
  chat.resize(120, 77);
  EXPECT_EQ(run(d, 2, chat), 100U);
  for (std::uint64_t i = 0; i < num_documents; ++i) EXPECT_EQ(run(d, 10 + i, CoreDriver::prompt(10 + i, 100)), 0U);
  chat.resize(140, 78);
  return run(d, 3, chat);
}

TEST(SegmentedLru, KeepsAConversationThroughASweepOfDocuments) {
  EXPECT_EQ(cached_after_sweep(0.0, 2), 120U) << "everything fits";
  EXPECT_EQ(cached_after_sweep(0.0, 32), 0U);
  EXPECT_EQ(cached_after_sweep(0.3, 32), 100U) << "the last turn was not used again yet";
}

TEST(SegmentedLru, KeepsNoMoreThanItsShare) {
  // 10 of the conversation's 25 reused blocks are protected. The sweep evicts the others, the end of the prefix first.
  EXPECT_EQ(cached_after_sweep(0.1, 32), 40U);
}

TEST(SegmentedLru, EndsWithAResetOfThePrefixCache) {
  CoreDriver d(slru_config(0.5));
  const Tokens chat = CoreDriver::prompt(1, 100);
  run(d, 1, chat);
  EXPECT_EQ(run(d, 2, chat), 96U);
  ASSERT_TRUE(d.core->reset_prefix_cache().value());
  EXPECT_EQ(run(d, 3, chat), 0U);
}

TEST(SegmentedLru, StaysInACheckpoint) {
  CoreDriver d(slru_config(0.3));
  const Tokens chat = CoreDriver::prompt(1, 100);
  run(d, 1, chat);
  run(d, 2, chat);
  d.core = Core::restore(slru_config(0.3), {}, d.core->checkpoint()).value();
  for (std::uint64_t i = 0; i < 32; ++i) run(d, 10 + i, CoreDriver::prompt(10 + i, 100));
  EXPECT_EQ(run(d, 3, chat), 96U);
}

TEST(SegmentedLru, IsRefusedBesideLastInFirstOut) {
  CoreConfig config = sync_config();
  config.prefix_cache.slru_share = 0.3;
  config.prefix_cache.lifo_free_blocks = true;
  EXPECT_EQ(config.validate().error().to_string(),
            "prefix_cache.slru_share: is set, but lifo_free_blocks is on, too; set only one of the two");
  config.prefix_cache.lifo_free_blocks = false;
  EXPECT_TRUE(config.validate().has_value());
  for (const double share : {-0.1, 1.1, std::nan("")}) {
    config.prefix_cache.slru_share = share;
    EXPECT_FALSE(config.validate().has_value()) << share;
  }
}

}  // namespace
}  // namespace quire::test
