// Tests a disk tier's transport in the engine with a connector that does not know it. The tokens are the same as without it.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "engine/simulated_engine.h"
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

}  // namespace
}  // namespace quire
