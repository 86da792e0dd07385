// What the policies that count uses are told: one use of each block for each request that is admitted, whatever is looked up or stored
// meanwhile.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

std::size_t num_used_again(OffloadDriver& o) {
  return o.connector->ledger().snapshot().lists[1].size();
}

TEST(OffloadUses, ABlockIsUsedAgainWhenAnotherRequestWantsIt) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .eviction_policy = "arc_paper"});
  o.add(1, 1, 9, 20);
  o.run();
  EXPECT_EQ(o.connector->counters().num_stored, 7U);
  EXPECT_EQ(num_used_again(o), 0U) << "its own blocks, stored one by one, are no sign of another user";
  o.forget_cached();
  o.add(2, 1, 9, 1);
  o.run();
  EXPECT_EQ(num_used_again(o), 2U);
}

TEST(OffloadUses, ARequestThatWaitsUsesNothing) {
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
    ASSERT_EQ(num_used_again(o), 0U) << "request 3 lacks blocks";
  }
  o.run();
  EXPECT_EQ(num_used_again(o), 2U);
}

}  // namespace
}  // namespace quire::test
