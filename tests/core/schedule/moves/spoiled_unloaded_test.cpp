// Who has run on what a spoiled request computed is found, whichever of them stands first in the batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/core_driver.h"
#include "core/schedule/state.h"

namespace quire::test {
namespace {

// The window of 2 has passed the first blocks that 1 has computed: it holds the fourth one alone, and that only if 1 has read the second
// one is worth nothing. No plan tells of that any more.
TEST(UnloadedOrder, WhoStandsBeforeTheOneWhoseBlockItHasFoundIsSpoiledToo) {
  for (const bool is_reversed : {false, true}) {
    CoreConfig config = sync_config();
    SlidingWindowSpec window;
    window.block_size = kBlockSize;
    window.sliding_window = 5;
    config.kv.groups = {{.layer_names = {"window"}, .spec = window, .layer_specs = {}}};
    config.kv_load_failure = KvLoadFailurePolicy::recompute;
    config.cures.unloaded_begin_anew = true;
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
    Ids spoiled = values(d.core->spoiled_by({.step = {}, .has_connector_output = true, .invalid_blocks = bad}));
    std::ranges::sort(spoiled);
    EXPECT_EQ(spoiled, Ids({1, 2})) << is_reversed;
  }
}

}  // namespace
}  // namespace quire::test
