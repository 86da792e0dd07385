// Tests that the core finds requests that ran on blocks of an affected request, whatever their order in the batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/core_driver.h"
#include "core/schedule/state.h"

namespace quire::test {
namespace {

// The window of request 2 has passed the first blocks that request 1 computed, so request 2 holds only the fourth block. That block is
// invalid only because request 1 read the second block. No remaining plan shows this.
TEST(UnloadedOrder, FindsAffectedRequestsThatAreBeforeTheirSource) {
  for (const bool is_reversed : {false, true}) {
    CoreConfig config = sync_config();
    SlidingWindowSpec window;
    window.block_size = kBlockSize;
    window.sliding_window = 5;
    config.kv.groups = {{.layer_names = {"window"}, .spec = window, .layer_specs = {}}};
    config.kv_load_failure = KvLoadFailurePolicy::recompute;
    config.fixes.unloaded_begin_anew = true;
    CoreDriver d(config);
    const Tokens longer = CoreDriver::prompt(1, 20);
    d.add(1, 16, 4);
    d.add(CoreDriver::request(2, longer, 4));
    d.step();
    const std::vector<BlockId> of_1 = d.blocks(1), of_2 = d.blocks(2);
    ASSERT_EQ(of_1.at(3), of_2.at(3));
    ASSERT_EQ(of_2.at(1), kNullBlock);
    std::vector<Request*>& running = d.core->state_->queues.running;
    ASSERT_EQ(running.size(), 2U);
    if (is_reversed) std::ranges::reverse(running);
    const std::vector<BlockId> bad = {of_1.at(1)};
    Ids invalidated = values(d.core->requests_invalidated_by({.step = {}, .has_connector_output = true, .invalid_blocks = bad}));
    std::ranges::sort(invalidated);
    EXPECT_EQ(invalidated, Ids({1, 2})) << is_reversed;
  }
}

}  // namespace
}  // namespace quire::test
