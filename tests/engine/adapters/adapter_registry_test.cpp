// Tests the registry of LoRA adapters: what it reads, which weights stay in memory, and which it evicts.
#include "engine/adapters/adapter_registry.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/random.h"
#include "engine/adapters/live_adapters.h"
#include "engine/adapters/made_adapters.h"

namespace quire {
namespace {

class AdapterRegistryTest : public testing::Test {
 protected:
  AdapterRegistryTest() {
    for (const char* name : {"a", "b", "c", "d"}) folders_.put(folder(name), std::string("bytes of ") + name);
  }
  static std::string folder(const std::string& name) { return "/" + name; }
  AdapterRegistry make(std::uint32_t max_resident) { return {max_resident, folders_.loader()}; }
  static void load(AdapterRegistry& registry, std::initializer_list<const char*> names) {
    for (const char* name : names) ASSERT_TRUE(registry.load(name, folder(name), false)) << name;
  }
  static std::vector<std::string> resident(const AdapterRegistry& registry) {
    std::vector<std::string> names;
    for (const AdapterInfo& info : registry.list())
      if (info.is_resident) names.push_back(info.name);
    return names;
  }
  static std::string bytes_of(const SharedLease& lease) { return lease->resident->weights->digest; }

  test::MadeAdapters folders_;
};

using Names = std::vector<std::string>;

TEST_F(AdapterRegistryTest, ReportsALoadedAdapter) {
  AdapterRegistry registry = make(2);
  const auto info = registry.load("a", "/a", false);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->name, "a");
  EXPECT_EQ(info->path, "/a");
  EXPECT_EQ(info->digest, "bytes of a");
  EXPECT_EQ(info->rank, 8U);
  EXPECT_TRUE(info->is_resident);
  const SharedLease lease = registry.lease("a").value();
  EXPECT_EQ(lease->name, "a");
  EXPECT_EQ(lease->resident->content_id, "sha256:bytes of a");
  EXPECT_GT(lease->resident->id, 0);
  EXPECT_EQ(folders_.num_reads(), 1);
}

TEST_F(AdapterRegistryTest, RefusesUnknownAndTakenNames) {
  AdapterRegistry registry = make(2);
  EXPECT_EQ(registry.lease("a").error().code, ErrorCode::not_found);
  EXPECT_EQ(registry.lease_resident("a").error().code, ErrorCode::not_found);
  EXPECT_EQ(registry.identify("a").error().code, ErrorCode::not_found);
  EXPECT_EQ(registry.unload("a").error().code, ErrorCode::not_found);
  EXPECT_EQ(registry.load("", "/a", false).error().field, "lora_name");
  EXPECT_EQ(registry.load("a", "", false).error().field, "lora_path");
  load(registry, {"a"});
  const auto again = registry.load("a", "/b", false);
  EXPECT_EQ(again.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(again.error().field, "lora_name");
  EXPECT_EQ(registry.list()[0].path, "/a");
}

TEST_F(AdapterRegistryTest, AddsNoNameWhenTheFolderCannotBeRead) {
  AdapterRegistry registry = make(1);
  EXPECT_EQ(registry.load("x", "/x", false).error().code, ErrorCode::not_found);
  EXPECT_TRUE(registry.list().empty());
  EXPECT_EQ(registry.stats().num_failed_loads, 1U);
  // The failed load releases its slot.
  load(registry, {"a"});
}

TEST_F(AdapterRegistryTest, ReportsAnErrorWhenTheReaderThrows) {
  AdapterRegistry registry(1, [](const std::string&) -> Result<std::shared_ptr<const Adapter>> { throw std::runtime_error("no memory"); });
  EXPECT_EQ(registry.load("a", "/a", false).error().code, ErrorCode::io);
  EXPECT_EQ(registry.load("a", "/a", false).error().code, ErrorCode::io);
  EXPECT_EQ(registry.stats().num_failed_loads, 2U);
}

TEST_F(AdapterRegistryTest, EvictsTheLeastRecentlyUsedAdapter) {
  AdapterRegistry registry = make(2);
  load(registry, {"a", "b"});
  ASSERT_TRUE(registry.lease("a"));
  load(registry, {"c"});
  EXPECT_EQ(resident(registry), (Names{"a", "c"}));
  // The registry reads the adapter again when a request names it.
  EXPECT_EQ(registry.lease_resident("b").value(), nullptr);
  ASSERT_TRUE(registry.lease("b"));
  EXPECT_EQ(resident(registry), (Names{"b", "c"}));
  const AdapterStats stats = registry.stats();
  EXPECT_EQ(stats.num_known, 3U);
  EXPECT_EQ(stats.num_resident, 2U);
  EXPECT_EQ(stats.num_loads, 4U);
  EXPECT_EQ(stats.num_evictions, 2U);
}

TEST_F(AdapterRegistryTest, KeepsWeightsWhileALeaseIsHeld) {
  AdapterRegistry registry = make(2);
  load(registry, {"a", "b"});
  SharedLease of_a = registry.lease("a").value();
  const SharedLease of_b = registry.lease("b").value();
  const auto refused = registry.load("c", "/c", false);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
  EXPECT_EQ(refused.error().field, "max_cpu_loras");
  EXPECT_EQ(folders_.num_reads(), 2);  // the registry reads nothing when there is no free slot
  SharedLease copy = of_a;
  of_a.reset();
  EXPECT_FALSE(registry.load("c", "/c", false));
  copy.reset();
  load(registry, {"c"});
  EXPECT_EQ(resident(registry), (Names{"b", "c"}));
}

// A worker keeps the weights of its last step until the next step, which may never come. These weights do not occupy a slot.
TEST_F(AdapterRegistryTest, KeepsWeightsOfAWorkerWithoutOccupyingASlot) {
  AdapterRegistry registry = make(1);
  LiveAdapters live;
  load(registry, {"a"});
  SharedLease held = live.hold(registry.lease("a").value());
  std::shared_ptr<const Adapter> weights = live.find(held->resident->id);
  EXPECT_EQ(weights->digest, "bytes of a");
  held.reset();
  EXPECT_TRUE(registry.load("b", "/b", false));
  EXPECT_EQ(weights->digest, "bytes of a");
}

TEST_F(AdapterRegistryTest, GivesNewContentANewIdUnderTheOldName) {
  AdapterRegistry registry = make(3);
  load(registry, {"a"});
  const SharedLease before = registry.lease("a").value();
  folders_.put("/a", "other bytes");
  const auto replaced = registry.load("a", "/a", true);
  ASSERT_TRUE(replaced);
  EXPECT_EQ(replaced->digest, "other bytes");
  const SharedLease after = registry.lease("a").value();
  EXPECT_EQ(bytes_of(after), "other bytes");
  EXPECT_EQ(bytes_of(before), "bytes of a");
  EXPECT_NE(before->resident->id, after->resident->id);
  EXPECT_NE(before->resident->content_id, after->resident->content_id);
}

// The files change without a reload request.
TEST_F(AdapterRegistryTest, ReadsChangedFilesWhenAnAdapterIsLoadedAgain) {
  AdapterRegistry registry = make(1);
  load(registry, {"a"});
  const std::string before = registry.lease("a").value()->resident->content_id;
  load(registry, {"b"});
  folders_.put("/a", "other bytes");
  EXPECT_EQ(registry.identify("a").value()->resident->content_id, before);  // the id of the last read
  EXPECT_EQ(bytes_of(registry.lease("a").value()), "other bytes");
  EXPECT_EQ(registry.identify("a").value()->resident->content_id, "sha256:other bytes");
  folders_.remove("/a");
  load(registry, {"c"});
  EXPECT_EQ(registry.lease("a").error().code, ErrorCode::not_found);
  EXPECT_EQ(registry.list().size(), 3U);  // the name stays registered because its folder may come back
}

TEST_F(AdapterRegistryTest, SharesWeightsBetweenNamesWithEqualContent) {
  folders_.put("/copy", "bytes of a");
  AdapterRegistry registry = make(1);
  load(registry, {"a"});
  const SharedLease of_a = registry.lease("a").value();
  // The registry does not know before the read that the copy needs no slot.
  EXPECT_EQ(registry.load("copy", "/copy", false).error().code, ErrorCode::overloaded);
  AdapterRegistry roomy = make(2);
  load(roomy, {"a"});
  const SharedLease first = roomy.lease("a").value();
  ASSERT_TRUE(roomy.load("copy", "/copy", false));
  const SharedLease second = roomy.lease("copy").value();
  EXPECT_EQ(first->resident, second->resident);
  EXPECT_EQ(second->name, "copy");
  EXPECT_EQ(roomy.stats().num_resident, 1U);
  // One of the names is enough to keep the weights.
  ASSERT_TRUE(roomy.unload("a"));
  EXPECT_EQ(resident(roomy), Names{"copy"});
}

TEST_F(AdapterRegistryTest, KeepsWeightsOfAnUnloadedNameWhileALeaseIsHeld) {
  AdapterRegistry registry = make(1);
  load(registry, {"a"});
  SharedLease lease = registry.lease("a").value();
  const std::weak_ptr<const Adapter> weights = lease->resident->weights;
  ASSERT_TRUE(registry.unload("a"));
  EXPECT_EQ(registry.lease("a").error().code, ErrorCode::not_found);
  EXPECT_EQ(bytes_of(lease), "bytes of a");
  // The weights are in memory, so they count.
  EXPECT_EQ(registry.stats().num_resident, 1U);
  EXPECT_EQ(registry.load("b", "/b", false).error().code, ErrorCode::overloaded);
  lease.reset();
  EXPECT_TRUE(weights.expired());
  EXPECT_EQ(registry.stats().num_resident, 0U);
  EXPECT_TRUE(registry.load("b", "/b", false));
}

TEST_F(AdapterRegistryTest, ReusesLeasedWeightsWhenANameIsLoadedAgain) {
  AdapterRegistry registry = make(2);
  load(registry, {"a"});
  const SharedLease lease = registry.lease("a").value();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(registry.unload("a"));
    ASSERT_TRUE(registry.load("a", "/a", false));
    EXPECT_EQ(registry.lease("a").value()->resident, lease->resident);
    EXPECT_EQ(registry.stats().num_resident, 1U);
  }
}

TEST_F(AdapterRegistryTest, FreesUnusedWeightsWhenANameIsUnloaded) {
  AdapterRegistry registry = make(2);
  load(registry, {"a"});
  const std::weak_ptr<const Adapter> weights = registry.lease("a").value()->resident->weights;
  ASSERT_TRUE(registry.unload("a"));
  EXPECT_TRUE(weights.expired());
  EXPECT_EQ(registry.stats().num_resident, 0U);
  EXPECT_EQ(registry.stats().num_evictions, 0U);
}

TEST_F(AdapterRegistryTest, LeaseWaitsForALoadInProgress) {
  constexpr int kThreads = 8;
  AdapterRegistry registry = make(2);
  load(registry, {"a", "b", "c"});  // "a" is evicted
  std::latch begun(1);
  std::promise<void> may_end;
  folders_.before_read([&, wait = may_end.get_future().share()](const std::string&) {
    begun.count_down();
    wait.wait();
  });
  std::vector<std::future<Result<SharedLease>>> asked;
  asked.push_back(std::async(std::launch::async, [&] { return registry.lease("a"); }));
  begun.wait();
  std::latch asking(kThreads - 1);
  for (int i = 1; i < kThreads; ++i)
    asked.push_back(std::async(std::launch::async, [&] {
      asking.count_down();
      return registry.lease("a");
    }));
  asking.wait();
  // The registry serves other adapters meanwhile.
  EXPECT_NE(registry.lease("c").value(), nullptr);
  EXPECT_EQ(registry.list().size(), 3U);
  may_end.set_value();
  const SharedLease first = asked[0].get().value();
  for (int i = 1; i < kThreads; ++i) EXPECT_EQ(asked[i].get().value()->resident, first->resident);
  EXPECT_EQ(folders_.num_reads(), 4);
}

TEST_F(AdapterRegistryTest, CountsALoadInProgressAsASlot) {
  AdapterRegistry registry = make(1);
  std::latch begun(1);
  std::promise<void> may_end;
  folders_.before_read([&, wait = may_end.get_future().share()](const std::string&) {
    begun.count_down();
    wait.wait();
  });
  auto first = std::async(std::launch::async, [&] { return registry.load("a", "/a", false).has_value(); });
  begun.wait();
  EXPECT_EQ(registry.load("b", "/b", false).error().field, "max_cpu_loras");
  may_end.set_value();
  EXPECT_TRUE(first.get());
  EXPECT_EQ(resident(registry), Names{"a"});
}

TEST_F(AdapterRegistryTest, LoadsANameOnceWhenThreadsRace) {
  AdapterRegistry registry = make(2);
  std::vector<std::future<bool>> asked;
  for (int i = 0; i < 8; ++i) asked.push_back(std::async(std::launch::async, [&] { return registry.load("a", "/a", false).has_value(); }));
  int num_done = 0;
  for (auto& one : asked) num_done += one.get() ? 1 : 0;
  EXPECT_EQ(num_done, 1);
  EXPECT_EQ(folders_.num_reads(), 1);
}

// Threads load, replace, lease and unload at random. A lease always has its own content, and the number of resident adapters stays bounded.
TEST_F(AdapterRegistryTest, KeepsLeasesConsistentUnderManyThreads) {
  constexpr std::uint32_t kMax = 3;
  AdapterRegistry registry = make(kMax);
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  const auto play = [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<std::pair<SharedLease, std::string>> held;
    for (int i = 0; i < 2000; ++i) {
      const std::string& name = names[random.below(names.size())];
      const std::uint64_t verb = random.below(10);
      if (verb == 0) folders_.put(folder(name), "bytes " + std::to_string(random.below(6)));
      if (verb == 1) (void)registry.unload(name);
      if (verb == 2 || verb == 3) (void)registry.load(name, folder(name), random.chance(0.5));
      if (verb > 3)
        if (auto lease = registry.lease(name)) held.emplace_back(*lease, bytes_of(*lease));
      if (held.size() > random.below(3)) {
        EXPECT_EQ(bytes_of(held.front().first), held.front().second);
        EXPECT_EQ(held.front().first->resident->content_id, "sha256:" + held.front().second);
        held.erase(held.begin());
      }
      EXPECT_LE(registry.stats().num_resident, kMax);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) threads.emplace_back(play, seed);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(AdapterRegistryTest, HandlesTenThousandNames) {
  constexpr int kNames = 10'000;
  constexpr std::uint32_t kMax = 16;
  AdapterRegistry registry = make(kMax);
  for (int i = 0; i < kNames; ++i) {
    const std::string name = std::to_string(i);
    folders_.put("/" + name, "bytes " + name);
    ASSERT_TRUE(registry.load(name, "/" + name, false));
  }
  EXPECT_EQ(registry.list().size(), std::size_t{kNames});
  EXPECT_EQ(registry.stats().num_resident, kMax);
  EXPECT_EQ(registry.stats().num_evictions, std::uint64_t{kNames} - kMax);
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = std::to_string(random.below(kNames));
    EXPECT_EQ(bytes_of(registry.lease(name).value()), "bytes " + name);
  }
  for (int i = 0; i < kNames; ++i) ASSERT_TRUE(registry.unload(std::to_string(i)));
  EXPECT_EQ(registry.stats().num_resident, 0U);
}

}  // namespace
}  // namespace quire
