// Tests what a watch frame shows of blocks: small counters saturate at their maximum.
#include "core/kv/block_watch.h"

#include <gtest/gtest.h>

namespace quire::test {
namespace {

TEST(BlockWatch, SaturatesHitsAndHolders) {
  BlockWatch shown;
  shown.begin(std::vector<WatchedBlock>(2));
  shown.at(1.25);
  const BlockId block{1};
  shown.on_allocated(block);
  for (std::uint32_t i = 1; i <= 65537; ++i) {
    shown.on_found(block, i + 1);
    ASSERT_EQ(shown.all()[1].num_hits, std::min(i, 65535U));
    ASSERT_EQ(shown.all()[1].num_holders, std::min(i + 1, 255U));
  }
  shown.on_allocated(block);
  EXPECT_EQ(shown.all()[1].num_hits, 0) << "hits are counted since the block was filled";
  EXPECT_EQ(shown.all()[0], WatchedBlock());
}

TEST(BlockWatch, ShowsTimesInTenthsOfASecondAndNotBeforeTheStart) {
  BlockWatch shown;
  shown.begin(std::vector<WatchedBlock>(2));
  for (const auto& [now_s, tenths] : {std::pair(1.25, 12U), std::pair(0.0, 0U), std::pair(0.1, 1U), std::pair(-3.0, 0U)}) {
    shown.at(now_s);
    shown.on_released(BlockId{1}, 0);
    EXPECT_EQ(shown.all()[1].last_use, tenths) << now_s;
  }
}

}  // namespace
}  // namespace quire::test
