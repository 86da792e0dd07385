// Tests which weights occupy a slot of the adapter registry while names are loaded again, get other bytes or share bytes.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/adapters/adapter_registry.h"
#include "engine/adapters/made_adapters.h"

namespace quire {
namespace {

class AdapterSlots : public testing::Test {
 protected:
  AdapterSlots() {
    for (const std::string name : {"a", "b", "c", "d"}) folders_.put("/" + name, "bytes of " + name);
  }
  AdapterRegistry make(std::uint32_t max_resident) { return {max_resident, folders_.loader()}; }
  static void load(AdapterRegistry& registry, std::initializer_list<std::string> names) {
    for (const std::string& name : names) ASSERT_TRUE(registry.load(name, "/" + name, false)) << name;
  }
  static std::vector<std::string> resident(const AdapterRegistry& registry) {
    std::vector<std::string> names;
    for (const AdapterInfo& info : registry.list())
      if (info.is_resident) names.push_back(info.name);
    return names;
  }

  test::MadeAdapters folders_;
};

TEST_F(AdapterSlots, CountsTheBytesOfResidentWeights) {
  const auto loader = [](const std::string& path) -> Result<std::shared_ptr<const Adapter>> {
    auto adapter = std::make_shared<Adapter>();
    adapter->digest = path;
    adapter->rank = static_cast<std::uint32_t>(path.size());
    adapter->embedding_a.resize(path.size());
    return adapter;
  };
  AdapterRegistry registry(2, loader);
  EXPECT_EQ(registry.load("a", "/a", false)->bytes, 8U);
  EXPECT_EQ(registry.load("b", "/bb", false)->bytes, 12U);
  EXPECT_EQ(registry.stats().bytes, 20U);
  const AdapterInfo replaced = registry.load("a", "/aaaa", true).value();
  EXPECT_EQ(replaced.bytes, 20U);
  EXPECT_EQ(replaced.rank, 5U);
  EXPECT_EQ(replaced.path, "/aaaa");
  EXPECT_EQ(registry.list().size(), 2U);
  EXPECT_EQ(registry.stats().bytes, 32U);
  ASSERT_TRUE(registry.unload("b"));
  EXPECT_EQ(registry.stats().bytes, 20U);
  ASSERT_TRUE(registry.unload("a"));
  EXPECT_EQ(registry.stats().bytes, 0U);
}

TEST_F(AdapterSlots, ALoadOrALeaseMakesAnAdapterTheMostRecentlyUsed) {
  for (const bool leases : {false, true}) {
    AdapterRegistry registry = make(3);
    load(registry, {"a", "b"});
    if (leases) ASSERT_NE(registry.lease_resident("a").value(), nullptr);
    if (!leases) ASSERT_TRUE(registry.load("a", "/a", true));
    EXPECT_EQ(registry.stats().num_evictions, 0U);
    load(registry, {"c", "d"});
    EXPECT_EQ(resident(registry), (std::vector<std::string>{"a", "c", "d"})) << leases;
  }
}

TEST_F(AdapterSlots, ALoadNeedsASlotBeforeItsBytesAreKnown) {
  AdapterRegistry registry = make(2);
  load(registry, {"a", "b"});
  ASSERT_TRUE(registry.load("b", "/b", true));
  EXPECT_EQ(registry.stats().num_evictions, 1U);
  EXPECT_EQ(resident(registry), std::vector<std::string>{"b"});
}

TEST_F(AdapterSlots, ANameThatIsLoadedTwiceCountsOnce) {
  AdapterRegistry registry = make(3);
  load(registry, {"a"});
  ASSERT_TRUE(registry.load("a", "/a", true));
  const std::weak_ptr<const Adapter> weights = registry.lease("a").value()->resident->weights;
  EXPECT_EQ(registry.stats().num_loads, 2U);
  EXPECT_EQ(registry.stats().num_resident, 1U);
  ASSERT_TRUE(registry.unload("a"));
  EXPECT_TRUE(weights.expired());
  EXPECT_EQ(registry.stats().num_known, 0U);
}

TEST_F(AdapterSlots, OtherBytesUnderANameLeaveTheOldBytesToOtherNames) {
  folders_.put("/copy", "bytes of a");
  AdapterRegistry registry = make(4);
  load(registry, {"a", "copy"});
  const SharedLease of_copy = registry.lease("copy").value();
  folders_.put("/a", "other bytes");
  ASSERT_TRUE(registry.load("a", "/a", true));
  EXPECT_EQ(registry.lease_resident("copy").value()->resident, of_copy->resident);
  EXPECT_EQ(registry.lease("a").value()->resident->weights->digest, "other bytes");
  EXPECT_EQ(registry.stats().num_resident, 2U);
  ASSERT_TRUE(registry.unload("copy"));
  EXPECT_EQ(registry.stats().num_resident, 2U) << "the lease keeps the old bytes in memory";
}

TEST_F(AdapterSlots, AnAdapterThatWasUnloadedAndLoadedAgainIsEvictedLikeOthers) {
  AdapterRegistry registry = make(2);
  load(registry, {"a"});
  SharedLease lease = registry.lease("a").value();
  ASSERT_TRUE(registry.unload("a"));
  load(registry, {"a"});
  lease.reset();
  load(registry, {"b", "c", "d"});
  EXPECT_EQ(resident(registry), (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(registry.list().size(), 4U);
  ASSERT_TRUE(registry.lease("a"));
  EXPECT_EQ(resident(registry), (std::vector<std::string>{"a", "d"}));
}

}  // namespace
}  // namespace quire
