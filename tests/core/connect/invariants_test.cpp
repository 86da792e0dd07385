// Death tests of the offloading connector's preconditions, which the core satisfies. A violation stops the program with a message.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

// Returns a request of two blocks. The first `num_names` blocks have a hash.
RequestView two_blocks(std::size_t num_names = 2) {
  static const std::vector<TokenId> tokens(std::size_t{2} * kBlockSize);
  static const std::vector<std::uint8_t> names(std::size_t{2} * 32);
  RequestView view;
  view.id = RequestId{7};
  view.tokens = tokens;
  view.block_hashes = std::span(names).first(num_names * 32);
  return view;
}

TEST(ConnectInvariantDeathTest, FullBlocksHaveHashes) {
  OffloadDriver o;
  EXPECT_DEATH((void)o.connector->match(two_blocks(1), 0), "a full block has a block hash");
}

TEST(ConnectInvariantDeathTest, AllocatedLoadsWereMatchedInWholeBlocks) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .block_size = 2 * kBlockSize});
  const BlockId blocks[] = {BlockId{1}, BlockId{2}};
  const auto allocated = [&](std::size_t num_blocks, std::uint32_t num_external_tokens) {
    const std::span<const BlockId> group = std::span(blocks).first(num_blocks);
    o.connector->allocated(two_blocks(), {&group, 1}, num_external_tokens);
  };
  EXPECT_DEATH(allocated(2, 2 * kBlockSize), "an allocated load was matched before");
  EXPECT_EQ(o.connector->match(two_blocks(), 0).num_tokens, 0U);
  EXPECT_DEATH(allocated(2, kBlockSize), "a load covers whole offloaded blocks");
  EXPECT_DEATH(allocated(1, 2 * kBlockSize), "a load covers whole offloaded blocks");
  EXPECT_DEATH(allocated(2, 2 * kBlockSize), "matched keys can be loaded") << "the tier is empty";
}

TEST(ConnectInvariantDeathTest, PlannedRequestsAreKnownToTheCore) {
  OffloadDriver o;
  ScheduledRequest unknown;
  unknown.id = RequestId{7};
  StepPlan plan;
  plan.scheduled = {&unknown, 1};
  EXPECT_DEATH(o.connector->planned(plan), "a planned request is known to the core");
  const auto unbound = OffloadConnector::create({.cpu_bytes_to_use = 32}, sync_config(), 1).value();
  EXPECT_DEATH(unbound->planned(plan), "the connector is bound to a core");
}

}  // namespace
}  // namespace quire::test
