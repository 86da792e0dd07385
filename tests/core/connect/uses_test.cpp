// Eviction policies that count uses receive one use of each block per admitted request. Lookups and stores in between do not count.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

std::size_t num_used_again(OffloadDriver& o) {
  return o.connector->ledger().snapshot().lists[1].size();
}

TEST(OffloadUses, CountsAUseWhenAnotherRequestNeedsTheBlock) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .eviction_policy = "arc_paper"});
  o.add(1, 1, 9, 20);
  o.run();
  EXPECT_EQ(o.connector->counters().num_stored, 7U);
  EXPECT_EQ(num_used_again(o), 0U) << "storing its own blocks one by one is not another use";
  o.forget_cached();
  o.add(2, 1, 9, 1);
  o.run();
  EXPECT_EQ(num_used_again(o), 2U);
}

TEST(OffloadUses, CountsNoUseWhileARequestWaits) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .eviction_policy = "arc_paper"}, sync_config(9));
  o.add(1, 1, 9, 1);
  o.run();
  o.forget_cached();
  o.add(2, 2, 24, 8);
  o.plan();
  o.apply();
  o.add(3, 1, 9, 1);
  for (int i = 0; i < 3; ++i) {
    o.plan();
    o.apply();
    ASSERT_EQ(num_used_again(o), 0U) << "request 3 waits for free blocks";
  }
  o.run();
  EXPECT_EQ(num_used_again(o), 2U);
}

}  // namespace
}  // namespace quire::test
