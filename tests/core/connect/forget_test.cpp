// Tests Core::forget_blocks(): no request may read the blocks again, so the tier drops them, also blocks in transfer.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

TEST(OffloadForget, DoesNotKeepBlocksThatAreBeingStored) {
  OffloadDriver o;
  o.add(1, 1, 9, 20);
  o.plan();
  o.apply();
  o.plan();  // begins to store the first two blocks
  const OffloadKey first = o.key(1, 0);
  ASSERT_TRUE(o.connector->ledger().contains(first));
  o.d.core->forget_blocks(RequestId{1});
  o.d.core->finish(RequestId{1}, RequestStatus::finished_error);
  o.apply();
  o.run();
  EXPECT_FALSE(o.connector->ledger().contains(first));
}

TEST(OffloadForget, DoesNotKeepBlocksThatAreBeingLoaded) {
  OffloadDriver o;
  o.add(1, 1, 9, 1);
  o.run();
  ASSERT_EQ(o.num_kept(), 2U);
  o.forget_cached();
  o.add(2, 1, 9, 1);
  o.plan();
  ASSERT_EQ(o.open.size(), 1U) << "one load is open";
  o.d.core->forget_blocks(RequestId{2});
  o.apply();
  EXPECT_EQ(o.num_kept(), 0U);
}

}  // namespace
}  // namespace quire::test
