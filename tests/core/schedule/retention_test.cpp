// Tests PrefixCacheOptions::retained_share: the blocks of requests that ask for it survive a sweep of other prompts, for their time, and
// within the share.
#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kNumPoolBlocks = 101;  // one of them is the null block
constexpr std::uint32_t kNumDocuments = 32;    // each takes a quarter of the pool

CoreConfig retention_config(double retained_share, double slru_share = 0.0) {
  CoreConfig config = sync_config(kNumPoolBlocks);
  config.scheduler.max_model_len = 400;
  config.scheduler.max_num_batched_tokens = 400;
  config.prefix_cache.retained_share = retained_share;
  config.prefix_cache.slru_share = slru_share;
  return config;
}

// Runs a request to its end and returns how many of its prompt tokens were cached.
std::uint32_t run_retained(CoreDriver& d, std::uint64_t id, const Tokens& prompt, std::uint32_t retention_s = 0) {
  const RequestTags tags{.retention_s = retention_s};
  NewRequest request = CoreDriver::request(id, prompt, 1);
  request.tags = &tags;
  d.add(request);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(plan.scheduled.size(), 1U);
  const std::uint32_t num_cached = plan.scheduled.empty() ? 0 : plan.scheduled.front().num_computed_tokens;
  d.apply();
  for (int i = 0; i < 5 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  return num_cached;
}

void sweep(CoreDriver& d, std::uint64_t first_id) {
  for (std::uint64_t i = 0; i < kNumDocuments; ++i) run_retained(d, first_id + i, CoreDriver::prompt(first_id + i, 100));
}

// A chat of 100 tokens asks for `retention_s`, then a sweep runs. Returns how many tokens of the chat are cached after it.
std::uint32_t cached_after_retention(const CoreConfig& config, std::uint32_t retention_s) {
  CoreDriver d(config);
  const Tokens chat = CoreDriver::prompt(1, 101);
  run_retained(d, 1, chat, retention_s);
  sweep(d, 10);
  return run_retained(d, 2, chat);
}

TEST(Retention, KeepsTheFirstTurnOfAChatThroughASweep) {
  EXPECT_EQ(cached_after_retention(retention_config(0.3), 1000), 100U);
  EXPECT_EQ(cached_after_retention(retention_config(0.3), 0), 0U) << "the request did not ask for it";
  EXPECT_EQ(cached_after_retention(retention_config(0.0), 1000), 0U) << "the option is off";
  EXPECT_EQ(cached_after_retention(retention_config(0.3, 0.3), 1000), 100U);
}

TEST(Retention, KeepsNoMoreThanItsShare) {
  // 10 of 25 blocks stay: the beginning of the prompt, because its end was released first.
  EXPECT_EQ(cached_after_retention(retention_config(0.1), 1000), 40U);
  // The newest requests have the share.
  CoreDriver d(retention_config(0.5));
  for (std::uint64_t id = 1; id <= 8; ++id) run_retained(d, id, CoreDriver::prompt(id, 101), 1000);
  sweep(d, 10);
  EXPECT_EQ(run_retained(d, 100, CoreDriver::prompt(8, 101)), 100U);
  EXPECT_EQ(run_retained(d, 101, CoreDriver::prompt(1, 101)), 0U);
}

TEST(Retention, CountsTheFreeBlocksItKeeps) {
  CoreDriver d(retention_config(0.1));
  run_retained(d, 1, CoreDriver::prompt(1, 101));
  EXPECT_EQ(d.core->counters().num_retained_blocks, 0U);
  run_retained(d, 2, CoreDriver::prompt(2, 21), 5);
  EXPECT_EQ(d.core->counters().num_retained_blocks, 5U);
  run_retained(d, 3, CoreDriver::prompt(3, 101), 1000);
  EXPECT_EQ(d.core->counters().num_retained_blocks, 10U) << "the share is a tenth of 100 blocks";
  d.now += 2000.0;
  run_retained(d, 4, CoreDriver::prompt(4, 21));
  EXPECT_EQ(d.core->counters().num_retained_blocks, 0U) << "their time is over";
}

TEST(Retention, EndsAfterItsTime) {
  for (const std::uint32_t retention_s : {5U, 500U}) {
    CoreDriver d(retention_config(0.3));
    const Tokens chat = CoreDriver::prompt(1, 101);
    run_retained(d, 1, chat, retention_s);
    d.now += 20.0;
    sweep(d, 10);
    EXPECT_EQ(run_retained(d, 2, chat), retention_s > 100 ? 100U : 0U) << retention_s;
  }
}

TEST(Retention, OfASharedPrefixLastsAsLongAsItsLongestRequest) {
  for (const bool is_last : {false, true}) {
    CoreDriver d(retention_config(0.3));
    const Tokens chat = CoreDriver::prompt(1, 101);
    run_retained(d, 1, chat, is_last ? 0 : 1000);
    run_retained(d, 2, chat, is_last ? 1000 : 5);
    d.now += 20.0;
    sweep(d, 10);
    EXPECT_EQ(run_retained(d, 3, chat), 100U) << is_last;
  }
}

TEST(Retention, NeverKeepsARequestWaiting) {
  CoreDriver d(retention_config(1.0));
  for (std::uint64_t id = 1; id <= 4; ++id) run_retained(d, id, CoreDriver::prompt(id, 100), 1000);
  run_retained(d, 5, CoreDriver::prompt(5, 390));  // needs nearly all blocks: retained blocks are evicted
}

TEST(Retention, StaysInACheckpoint) {
  for (const std::uint32_t retention_s : {5U, 500U}) {
    CoreDriver d(retention_config(0.3));
    const Tokens chat = CoreDriver::prompt(1, 101);
    run_retained(d, 1, chat, retention_s);
    d.core = Core::restore(retention_config(0.3), {}, d.core->checkpoint()).value();
    d.now += 20.0;
    sweep(d, 10);
    EXPECT_EQ(run_retained(d, 2, chat), retention_s > 100 ? 100U : 0U) << retention_s;
  }
}

TEST(Retention, EndsWithAResetOfThePrefixCache) {
  CoreDriver d(retention_config(0.3));
  const Tokens chat = CoreDriver::prompt(1, 101);
  run_retained(d, 1, chat, 1000);
  ASSERT_TRUE(d.core->reset_prefix_cache().value());
  EXPECT_EQ(run_retained(d, 2, chat), 0U);
}

TEST(Retention, IsRefusedTogetherWithLastInFirstOut) {
  CoreConfig config = retention_config(0.3);
  config.prefix_cache.lifo_free_blocks = true;
  EXPECT_EQ(config.validate().error().to_string(),
            "prefix_cache.retained_share: is set, but lifo_free_blocks is on, too; set only one of the two");
  config.prefix_cache.lifo_free_blocks = false;
  EXPECT_TRUE(config.validate().has_value());
  config.prefix_cache.retained_share = 1.1;
  EXPECT_FALSE(config.validate().has_value());
}

}  // namespace
}  // namespace quire::test
