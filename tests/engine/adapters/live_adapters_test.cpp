// Tests where a worker finds the adapters of open requests.
#include "engine/adapters/live_adapters.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace quire {
namespace {

SharedLease lease_on(std::int64_t id, const std::string& digest) {
  auto adapter = std::make_shared<Adapter>();
  adapter->digest = digest;
  return std::make_shared<const AdapterLease>(AdapterLease{
      digest, std::make_shared<const ResidentAdapter>(ResidentAdapter{.id = id, .content_id = "sha256:" + digest, .weights = adapter})});
}

TEST(LiveAdaptersTest, FindsAnAdapterUntilItsLastRequestEnds) {
  LiveAdapters live;
  SharedLease a = lease_on(3, "a"), b = lease_on(4, "b");
  const std::weak_ptr<const Adapter> weights = a->resident->weights;
  SharedLease first = live.hold(a), second = live.hold(a);
  const SharedLease other = live.hold(b);
  EXPECT_EQ(first->name, "a");
  EXPECT_EQ(first.get(), a.get()) << "a view of the same lease";
  a.reset();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(live.find(3)->digest, "a");
  EXPECT_EQ(live.find(4)->digest, "b");
  SharedLease copy = first;
  first.reset();
  copy.reset();
  EXPECT_EQ(live.find(3)->digest, "a") << "the second request is open";
  second.reset();
  EXPECT_TRUE(weights.expired()) << "the weights are freed with the last request";
  EXPECT_EQ(live.find(4)->digest, "b");
  const SharedLease again = live.hold(lease_on(3, "c"));
  EXPECT_EQ(live.find(3)->digest, "c");
}

TEST(LiveAdaptersDeathTest, AWorkerAsksOnlyForAdaptersOfOpenRequests) {
  LiveAdapters live;
  live.hold(lease_on(3, "a")).reset();
  EXPECT_DEATH((void)live.find(3), "an open request holds its adapter");
}

TEST(LiveAdaptersTest, TheBaseModelNeedsNoLease) {
  LiveAdapters live;
  EXPECT_EQ(live.hold(nullptr), nullptr);
  NewRequest request;
  set_lora_fields(nullptr, request);
  EXPECT_EQ(request.lora_id, NewRequest().lora_id);
  const SharedLease lease = live.hold(lease_on(7, "a"));
  set_lora_fields(lease.get(), request);
  EXPECT_EQ(request.lora_id, 7);
  EXPECT_EQ(request.lora_name, "sha256:a");
}

}  // namespace
}  // namespace quire
