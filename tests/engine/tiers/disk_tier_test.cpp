// Tests the disk tier: how it takes the blocks of an earlier process, and what it counts. Its transport also works in the engine with a
// connector that does not know it: the tokens are the same as without it.
#include "engine/tiers/disk_tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "engine/simulated_engine.h"
#include "engine/tiers/hashed_request.h"
#include "runtime/tier/flaky_files.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_support.h"
#include "support/small_cache.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

// Puts a disk below the toy's scheduler half. The toy numbers its slots without a bound, and each number is a key here.
class DiskUnderToy final : public Transport {
 public:
  explicit DiskUnderToy(const std::string& folder) : store_(open(folder)), disk_(store_, 60.0) {}

  void attach(const KvPages& pages, std::function<void()> notify) override { disk_.attach(pages, std::move(notify)); }
  void start(const Transfer& transfer) override {
    std::vector<std::uint64_t> numbers;
    for (const std::uint64_t place : transfer.places) {
      OffloadKey name;
      std::memcpy(name.hash.data(), &place, sizeof place);
      if (transfer.direction == TransferDirection::store)
        numbers_[place] = disk_.assign(static_cast<std::uint32_t>(place % store_->num_places()), name);
      numbers.push_back(numbers_.at(place));
    }
    Transfer named = transfer;
    named.places = numbers;
    disk_.start(named);
  }
  void poll(std::vector<TransferCompletion>& over) override { disk_.poll(over); }
  void wait(TransferId transfer) override { disk_.wait(transfer); }
  void detach() override { disk_.detach(); }

  [[nodiscard]] DiskStoreStats stats() const { return store_->stats(); }

 private:
  static std::shared_ptr<DiskStore> open(const std::string& folder) {
    return DiskStore::open(test::tier_folder(folder), {.budget_bytes = 64 << 20, .block_bytes = test::kSmallBlockBytes}).value();
  }
  std::shared_ptr<DiskStore> store_;
  StoreTransport disk_;
  std::map<std::uint64_t, std::uint64_t> numbers_;  // slot numbers by the toy's slot
};

class DiskTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, DiskTierTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(DiskTierTest, LoadsAndStoresChangeNoToken) {
  for (const double load_async : {0.0, 0.5, 1.0}) {
    const test::TempFolder folder;
    const auto toy =
        std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = test::kSmallBlock, .load_async = load_async, .seed = 3});
    const auto disk = std::make_shared<DiskUnderToy>(folder.path());
    const std::unique_ptr<Engine> engine =
        start(GetParam(), {.options = test::small_cache(), .seams = {.connector = toy, .transport = disk}});
    const EngineStats stats = test::run_random(*engine, 17);
    EXPECT_GT(stats.num_loads, 10U) << "the test covers too few cases";
    EXPECT_GT(stats.num_stores, 50U);
    EXPECT_GT(stats.num_preemptions, 0U);
    const DiskStoreStats moved = disk->stats();
    EXPECT_EQ(stats.bytes_loaded, moved.bytes_loaded);
    EXPECT_EQ(moved.bytes_loaded, moved.num_loaded * test::kSmallBlockBytes);
    EXPECT_EQ(stats.bytes_stored, moved.bytes_stored);
    EXPECT_EQ(moved.num_absent + moved.num_refused + moved.num_failed(), 0U);
  }
}

constexpr std::uint32_t kDiskSlots = 1500;

// A tier on a folder in memory, with room for kDiskSlots blocks.
class DiskTierRig {
 public:
  std::shared_ptr<DiskTier> open(const KvDiskOptions& change = {}) {
    KvDiskOptions options = change;
    options.folder = "/nowhere";
    options.budget_bytes = kDiskSlots * std::uint64_t{4096};
    while (num_slots_within(options.budget_bytes, 4096) < kDiskSlots) options.budget_bytes += 4096;
    CoreConfig config = test::small_config();
    config.kv.num_blocks = test::kSmallBlocks;
    config.report.enable_kv_events = true;
    return DiskTier::open_on(files(), options, config, layout, test::tier_fingerprint()).value();
  }
  std::unique_ptr<TierFiles> files() { return std::make_unique<test::FlakyFiles>(disk, flaws); }
  static OffloadConnector& offload_of(DiskTier& tier) { return dynamic_cast<OffloadConnector&>(tier.connector()); }
  static void take_all(DiskTier& tier) {
    ASSERT_TRUE(test::comes_true([&] {
      tier.maintain(0.0);
      return tier.stats().num_unread_slots == 0;
    }));
  }
  // Moves blocks `first` to `end` - 1 to or from the tier.
  void move(DiskTier& tier, TransferDirection direction, std::uint64_t first, std::uint64_t end, TransferId id) {
    tier.transport().attach({.layout = &layout, .tensors = {memory.data()}}, [] {});
    std::vector<std::uint64_t> places;
    std::vector<BlockId> blocks;
    for (std::uint64_t number = first; number < end; ++number) {
      if (direction == TransferDirection::store) test::add_key(offload_of(tier), number);
      places.push_back(offload_of(tier).hold(test::small_key(number)).value());
      blocks.push_back(BlockId{static_cast<std::uint32_t>(number)});
    }
    tier.transport().start({.id = id, .request = {}, .direction = direction, .blocks = blocks, .places = places});
    std::vector<TransferCompletion> over;
    EXPECT_TRUE(test::comes_true([&] {
      tier.transport().poll(over);
      return !over.empty();
    }));
    EXPECT_EQ(over.at(0).outcome, TransferOutcome::done);
    tier.transport().detach();
    for (std::uint64_t number = first; number < end; ++number) offload_of(tier).release(test::small_key(number));
  }

  const KvLayout layout = test::small_layout();
  std::vector<std::byte> memory = std::vector<std::byte>(layout.total_bytes(), std::byte{1});
  const std::shared_ptr<test::MemoryDisk> disk = std::make_shared<test::MemoryDisk>();
  const std::shared_ptr<test::Flaws> flaws = std::make_shared<test::Flaws>();
};

TEST(DiskTierSlots, AreTakenInPortionsBetweenSteps) {
  DiskTierRig rig;
  const auto tier = rig.open({.policy = KvTierPolicy::exact});
  EXPECT_EQ(tier->stats().num_places, kDiskSlots);
  EXPECT_EQ(tier->stats().num_unread_slots, kDiskSlots);
  EXPECT_EQ(tier->stats().num_used_slots, 0U);
  ASSERT_TRUE(test::comes_true([&] { return tier->maintain(0.0); }));
  EXPECT_EQ(tier->stats().num_unread_slots, kDiskSlots - 1024);
  EXPECT_EQ(tier->stats().num_used_slots, 0U);
  EXPECT_TRUE(tier->maintain(0.0));
  EXPECT_EQ(tier->stats().num_unread_slots, 0U);
  EXPECT_FALSE(tier->maintain(0.0)) << "nothing is left to do";
}

TEST(DiskTierSlots, HoldTheBlocksOfAnEarlierProcessOldestFirst) {
  DiskTierRig rig;
  {
    const auto tier = rig.open({.policy = KvTierPolicy::exact});
    DiskTierRig::take_all(*tier);
    rig.move(*tier, TransferDirection::store, 1, 6, TransferId{1});
    const KvTierStats stats = tier->stats();
    EXPECT_EQ(stats.name, "disk");
    EXPECT_GE(stats.budget_bytes, kDiskSlots * std::uint64_t{4096});
    EXPECT_EQ(stats.place_bytes, 4096U);
    EXPECT_EQ(stats.num_used_slots, 5U);
    EXPECT_EQ(stats.num_stored_blocks, 5U);
    EXPECT_EQ(stats.bytes_stored, 5 * test::kSmallBlockBytes);
    EXPECT_EQ(stats.num_restored_blocks, 0U);
    EXPECT_EQ(stats.num_demoted_blocks, 0U);
    EXPECT_EQ(stats.num_corrupted_blocks + stats.num_failed_blocks + stats.num_without_slot + stats.num_times_disabled, 0U);
    EXPECT_FALSE(stats.loads_left_out || stats.stores_left_out);
    std::vector<KvEvent> events;
    tier->take_events({}, events);
    ASSERT_EQ(events.size(), 5U);
    EXPECT_EQ(std::get<BlockStored>(events[0]).medium, "DISK");
  }
  const auto tier = rig.open({.policy = KvTierPolicy::exact});
  DiskTierRig::take_all(*tier);
  EXPECT_EQ(tier->stats().num_restored_blocks, 5U);
  EXPECT_EQ(tier->stats().num_used_slots, 5U);
  EXPECT_EQ(tier->stats().num_stored_blocks, 0U);
  std::vector<OffloadKey> victims;
  DiskTierRig::offload_of(*tier).append_next_victims(2, victims);
  EXPECT_EQ(victims, (std::vector{test::small_key(1), test::small_key(2)})) << "the blocks that were stored first are evicted first";
  rig.move(*tier, TransferDirection::load, 1, 4, TransferId{1});
  EXPECT_EQ(tier->stats().num_loaded_blocks, 3U);
  EXPECT_EQ(tier->stats().bytes_loaded, 3 * test::kSmallBlockBytes);
}

TEST(DiskTierSlots, IgnoreBlocksOfAnotherLayout) {
  DiskTierRig rig;
  {
    const auto tier = rig.open({.policy = KvTierPolicy::exact});
    DiskTierRig::take_all(*tier);
    rig.move(*tier, TransferDirection::store, 1, 3, TransferId{1});
  }
  {
    std::uint64_t budget = kDiskSlots * std::uint64_t{4096};
    while (num_slots_within(budget, 4096) < kDiskSlots) budget += 4096;
    const auto store =
        DiskStore::open(rig.files(),
                        {.budget_bytes = budget, .block_bytes = test::kSmallBlockBytes, .fingerprint = test::tier_fingerprint()})
            .value();
    std::vector<RestoredBlock> found;
    ASSERT_TRUE(test::comes_true([&] { return store->restored(0, found) == kDiskSlots; }));
    OffloadKey small = test::small_key(8), other_group = test::small_key(9);
    other_group.group = 1;
    std::atomic<int> num_done = 0;
    const auto put = [&](std::uint32_t place, const OffloadKey& key, std::uint32_t bytes) {
      store->submit({.verb = TierJob::Verb::store,
                     .place = place,
                     .name = key,
                     .bytes = bytes,
                     .copy = [](std::span<std::byte>) { return true; },
                     .over = [&num_done](TierOutcome outcome) { num_done += outcome == TierOutcome::done ? 1 : 100; }});
    };
    put(700, small, test::kSmallBlockBytes - 8);
    put(701, other_group, test::kSmallBlockBytes);
    ASSERT_TRUE(test::comes_true([&] { return num_done == 2; }));
  }
  const auto tier = rig.open({.policy = KvTierPolicy::exact});
  DiskTierRig::take_all(*tier);
  EXPECT_EQ(tier->stats().num_restored_blocks, 4U);
  EXPECT_EQ(tier->stats().num_used_slots, 2U);
  EXPECT_TRUE(DiskTierRig::offload_of(*tier).ledger().contains(test::small_key(1)));
}

TEST(DiskTierSlots, MeasureTheCostsOfLoads) {
  DiskTierRig rig;
  const auto tier = rig.open({.policy = KvTierPolicy::measured});
  DiskTierRig::take_all(*tier);
  rig.move(*tier, TransferDirection::store, 1, 6, TransferId{1});
  EXPECT_TRUE(tier->maintain(100.0));
  EXPECT_FALSE(tier->maintain(100.0)) << "nothing has changed";
  EXPECT_EQ(tier->stats().compute_tokens_per_s, 100.0);
  EXPECT_EQ(tier->stats().load_bytes_per_s, 0.0);
  rig.move(*tier, TransferDirection::load, 1, 6, TransferId{2});
  EXPECT_TRUE(tier->maintain(100.0));
  const double rate = tier->stats().load_bytes_per_s;
  EXPECT_GT(rate, 0.0);
  EXPECT_FALSE(tier->maintain(100.0));
  EXPECT_EQ(tier->stats().load_bytes_per_s, rate);
  EXPECT_EQ(tier->policy(), KvTierPolicy::measured);
}

TEST(DiskTierSlots, FollowTheOptionsOfTheTier) {
  DiskTierRig rig;
  for (const bool joins : {false, true}) {
    const auto tier = rig.open({.policy = KvTierPolicy::exact, .join_loads = joins});
    DiskTierRig::take_all(*tier);
    EXPECT_EQ(test::joins_loads(DiskTierRig::offload_of(*tier)), joins);
  }
}

TEST(DiskTierSlots, AreNotLoadedFromADiskThatFails) {
  DiskTierRig rig;
  const auto tier = rig.open({.policy = KvTierPolicy::exact});
  std::atomic<std::uint32_t> num_notices = 0;
  DiskTierRig::take_all(*tier);
  rig.move(*tier, TransferDirection::store, 1, 4, TransferId{9});
  tier->set_notify([&num_notices] { ++num_notices; });
  rig.flaws->fails_reads = true;
  tier->transport().attach({.layout = &rig.layout, .tensors = {rig.memory.data()}}, [] {});
  for (std::uint32_t i = 1; i <= 3; ++i) {
    const std::vector<BlockId> blocks{BlockId{i}};
    const std::vector<std::uint64_t> places{DiskTierRig::offload_of(*tier).hold(test::small_key(i)).value()};
    tier->transport().start({.id = TransferId{i}, .request = {}, .direction = TransferDirection::load, .blocks = blocks, .places = places});
  }
  ASSERT_TRUE(test::comes_true([&] { return num_notices > 0; }));
  EXPECT_FALSE(tier->stats().loads_left_out) << "the engine thread has not taken the change yet";
  ASSERT_TRUE(test::comes_true([&] { return tier->maintain(0.0); }));
  EXPECT_TRUE(tier->stats().loads_left_out);
  EXPECT_FALSE(tier->stats().stores_left_out);
  EXPECT_GE(tier->stats().num_failed_blocks, 3U);
  EXPECT_GE(tier->stats().num_times_disabled, 1U);
  const test::HashedRequest request(1, 6, 1);
  EXPECT_EQ(tier->connector().match(request.view, 0).num_tokens, 0U);
  tier->transport().detach();
  tier->set_notify({});
}

}  // namespace
}  // namespace quire
