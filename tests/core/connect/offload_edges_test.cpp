// Tests what the offloading connector finds and loads at edges: in the middle of a block, and when a window has passed a tier's whole part.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "core/connect/composite_connector.h"
#include "core/connect/grouped_config.h"
#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

// The tier has sixteen tokens of the prompt. It matches whole blocks or nothing from every start position.
TEST(OffloadEdges, MatchesAndPeeksWholeBlocksOnly) {
  for (const std::uint32_t factor : {1U, 2U}) {
    const std::uint32_t tokens_per_key = factor * kBlockSize;
    OffloadDriver o({.cpu_bytes_to_use = 32, .block_size = tokens_per_key});
    o.add(1, 1, 17, 1);
    o.run();
    o.forget_cached();
    o.add(2, 1, 25, 1);
    for (std::uint32_t num_local = 0; num_local < 25; ++num_local) {
      const std::uint32_t wanted = num_local + tokens_per_key <= 16 ? 16 - num_local : 0;
      EXPECT_EQ(o.connector->match(o.d.view(2), num_local).num_tokens, wanted) << num_local;
      std::vector<TierMatch> looked, expected;
      if (wanted > 0) expected.push_back({.tier = 0, .num_tokens = wanted, .load_async = true});
      EXPECT_TRUE(o.connector->peek(o.d.view(2), num_local, looked));
      EXPECT_EQ(looked, expected) << num_local;
    }
    o.run();
  }
}

// One tier has the first two blocks of a prompt, and the other tier the next three. The window needs only the last block.
TEST(OffloadEdges, LoadsNothingForAWindowThatHasPassedATiersPart) {
  const CoreConfig config = grouped_config({0, 5});
  OffloadDriver named({.cpu_bytes_to_use = 64}, config);
  named.add(1, 1, 21, 1);
  const auto tier = [&](std::size_t first, std::size_t end) {
    std::shared_ptr<OffloadConnector> made = OffloadConnector::create({.cpu_bytes_to_use = 64}, config, 1).value();
    for (std::size_t i = first; i < end; ++i) {
      for (const std::uint32_t group : {0U, 1U}) {
        EXPECT_TRUE(made->adopt(named.key(1, i, group)).has_value());
        made->adopted(named.key(1, i, group), true);
      }
    }
    return made;
  };
  const auto upper = tier(0, 2), lower = tier(2, 5);
  CompositeConnector composite({{.connector = upper, .tier = 0}, {.connector = lower, .tier = 1}}, CompositeChoice::stacked);
  CoreDriver d(config, {.connector = &composite});
  const Tokens prompt = CoreDriver::prompt(1, 21);
  d.add(CoreDriver::request(1, prompt, 1));
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::size_t>> loads;  // tier, group, blocks
  std::vector<TransferCompletion> over;
  for (const Transfer& transfer : d.plan().transfers) {
    loads.emplace(transfer.tier, transfer.group, transfer.blocks.size());
    over.push_back({.transfer = transfer.id});
  }
  EXPECT_EQ(loads, (decltype(loads){{0, 0, 2}, {1, 0, 3}, {1, 1, 1}}));
  upper->check_invariants();
  lower->check_invariants();
  d.apply({}, {.completions = over});
  EXPECT_EQ(d.plan().scheduled[0].num_computed_tokens, 20U);
  d.apply();
  named.run();
}

}  // namespace
}  // namespace quire::test
