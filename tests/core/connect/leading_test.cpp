// A tier that is smaller than a prompt keeps the prompt's first blocks, and counts each block without a slot once.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire {
namespace {

using test::OffloadDriver;

OffloadConnectorOptions leading(std::uint64_t num_slots) {
  return {.cpu_bytes_to_use = num_slots, .hit_after_store_completes = true, .stores_leading_blocks = true};
}

// Prompts have 11 blocks of 4 tokens and one more token. A step computes at most 16 tokens.
CoreConfig chunked() {
  CoreConfig config = test::sync_config(64);
  config.scheduler.max_num_batched_tokens = 16;
  return config;
}

// Returns how many tokens of the prompt were loaded from the tier.
std::uint32_t num_found_again(OffloadDriver& o, std::uint64_t id, std::uint64_t prompt) {
  o.forget_cached();
  const std::uint64_t before = o.connector->counters().num_loaded_tokens;
  o.add(id, prompt, 45, 1);
  o.run();
  return static_cast<std::uint32_t>(o.connector->counters().num_loaded_tokens - before);
}

TEST(OffloadLeading, StoresTheBeginningOfAPromptThatIsLargerThanTheTier) {
  for (const std::uint64_t num_slots : {1U, 3U, 7U, 10U}) {
    OffloadDriver o(leading(num_slots), chunked());
    o.add(1, 1, 45, 1);
    o.run();
    EXPECT_EQ(o.num_kept(), num_slots);
    EXPECT_EQ(o.connector->num_left_out(), 11 - num_slots) << "each of the other blocks counts once";
    EXPECT_EQ(num_found_again(o, 2, 1), 4 * num_slots);
    // The first blocks of another prompt replace the stored blocks.
    o.add(3, 2, 45, 1);
    o.run();
    EXPECT_EQ(num_found_again(o, 4, 2), 4 * num_slots);
  }
}

TEST(OffloadLeading, StoresAllBlocksOfAPromptThatFits) {
  OffloadDriver o(leading(11), chunked());
  o.add(1, 1, 45, 1);
  o.run();
  EXPECT_EQ(o.connector->num_left_out(), 0U);
  EXPECT_EQ(num_found_again(o, 2, 1), 44U);
}

TEST(OffloadLeading, StoresNothingOfALargerPromptAndCountsEachBlockOnceWhenDisabled) {
  OffloadDriver o({.cpu_bytes_to_use = 3}, chunked());
  o.add(1, 1, 45, 5);
  o.run();
  EXPECT_EQ(o.num_kept(), 0U) << "vLLM stores nothing either";
  EXPECT_EQ(o.connector->num_left_out(), 12U) << "eleven blocks of the prompt and one of its output";
}

TEST(OffloadLeading, KeepsTheBeginningOfAnOutputThatGrowsBeyondTheTier) {
  OffloadDriver o(leading(4), chunked());
  o.add(1, 1, 9, 30);
  o.run();
  EXPECT_EQ(o.num_kept(), 4U);
  EXPECT_EQ(o.connector->num_left_out(), 5U);
  o.forget_cached();
  o.add(2, 1, 9, 1);
  o.run();
  EXPECT_EQ(o.connector->counters().num_loaded_tokens, 8U);
}

TEST(OffloadLeading, LeavesARequestThatIsTooLargeToTheTierBelow) {
  OffloadDriver upper(leading(8), chunked());
  upper.connector->set_max_request_blocks(4);
  upper.add(1, 1, 45, 1);
  upper.run();
  EXPECT_EQ(upper.num_kept(), 0U);
  EXPECT_EQ(upper.connector->num_left_out(), 0U) << "the tier below stores the blocks";
  upper.add(2, 2, 17, 1);
  upper.run();
  EXPECT_EQ(upper.num_kept(), 4U);

  OffloadDriver lower(leading(20), chunked());
  lower.connector->set_upper_tier(*upper.connector);
  lower.add(1, 1, 45, 1);
  lower.add(2, 2, 17, 1);
  lower.run();
  EXPECT_EQ(lower.num_kept(), 11U) << "blocks that fit above move down when they are evicted there";
}

}  // namespace
}  // namespace quire
