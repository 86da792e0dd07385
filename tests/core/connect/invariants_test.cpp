// Rules of use of the offloading connector, which a core keeps: whoever breaks one stops the program with a message.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire {
namespace {

using test::kBlockSize;
using test::OffloadDriver;

// A request of two blocks; names of the first so many are there.
RequestView two_blocks(std::size_t num_names = 2) {
  static const std::vector<TokenId> tokens(std::size_t{2} * kBlockSize);
  static const std::vector<std::uint8_t> names(std::size_t{2} * 32);
  RequestView view;
  view.id = RequestId{7};
  view.tokens = tokens;
  view.block_hashes = std::span(names).first(num_names * 32);
  return view;
}

TEST(ConnectInvariantDeathTest, FullBlocksHaveNames) {
  OffloadDriver o;
  EXPECT_DEATH((void)o.connector->match(two_blocks(1), 0), "full blocks have names");
}

TEST(ConnectInvariantDeathTest, WhatIsAllocatedWasMatchedInWholeBlocks) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .block_size = 2 * kBlockSize});
  const BlockId blocks[] = {BlockId{1}, BlockId{2}};
  const auto allocated = [&](std::size_t num_blocks, std::uint32_t num_external_tokens) {
    const std::span<const BlockId> group = std::span(blocks).first(num_blocks);
    o.connector->allocated(two_blocks(), {&group, 1}, num_external_tokens);
  };
  EXPECT_DEATH(allocated(2, 2 * kBlockSize), "what is allocated was matched");
  EXPECT_EQ(o.connector->match(two_blocks(), 0).num_tokens, 0U);
  EXPECT_DEATH(allocated(2, kBlockSize), "whole offloaded blocks are loaded");
  EXPECT_DEATH(allocated(1, 2 * kBlockSize), "whole offloaded blocks are loaded");
  EXPECT_DEATH(allocated(2, 2 * kBlockSize), "what matched can be loaded") << "the tier is empty";
}

TEST(ConnectInvariantDeathTest, ItsCorePlansRequestsThatItKnows) {
  OffloadDriver o;
  ScheduledRequest stranger;
  stranger.id = RequestId{7};
  StepPlan plan;
  plan.scheduled = {&stranger, 1};
  EXPECT_DEATH(o.connector->planned(plan), "what is planned is known");
  const auto unbound = OffloadConnector::create({.cpu_bytes_to_use = 32}, test::sync_config(), 1).value();
  EXPECT_DEATH(unbound->planned(plan), "a connector belongs to a core");
}

}  // namespace
}  // namespace quire
