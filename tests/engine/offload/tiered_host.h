#pragma once
// A host with one worker above a folder in memory. The bytes of a block follow from its number.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "quire/tiered_offload.h"
#include "runtime/tier/flaky_files.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

inline constexpr std::uint64_t kHostPageBytes = 5000;  // a block has two pages
inline constexpr std::uint32_t kNumHostSlots = 8;

inline OffloadKey host_key(std::uint64_t number) {
  OffloadKey key = tier_name(number);
  key.group = 0;
  return key;
}

inline std::vector<OffloadKey> host_keys(std::uint64_t first, std::uint64_t count) {
  std::vector<OffloadKey> keys;
  keys.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back(host_key(first + i));
  return keys;
}

class TieredHost {
 public:
  // `change` sets further options.
  TieredHost(const std::shared_ptr<MemoryDisk>& disk, const std::shared_ptr<Flaws>& flaws,
             const std::function<void(TieredOffloadOptions&)>& change = {}) {
    TieredOffloadOptions options = basic_options();
    if (change) change(options);
    auto opened = TieredOffload::open_on(std::make_unique<FlakyFiles>(disk, flaws), options);
    EXPECT_TRUE(opened) << opened.error().to_string();
    tiers_ = *std::move(opened);
  }
  TieredHost(const TieredHost&) = delete;
  TieredHost& operator=(const TieredHost&) = delete;

  // Copies the bytes of a block to a slot, and writes the number that the worker must write.
  void copy(std::uint64_t block_number, OffloadSlot slot, std::uint64_t number) {
    const std::vector<std::byte> block = tier_block(block_number, 2 * kHostPageBytes);
    for (std::size_t t = 0; t < 2; ++t)
      std::copy_n(block.data() + t * kHostPageBytes, kHostPageBytes, tensors_[t].data() + slot.value * kHostPageBytes);
    __atomic_store_n(written_.data() + slot.value, number, __ATOMIC_RELEASE);
  }
  void store(std::uint64_t first, std::uint64_t count) {
    const std::optional<StoreWithNumbers> store = tiers_->prepare_store(host_keys(first, count));
    ASSERT_TRUE(store);
    ASSERT_EQ(store->keys.size(), count);
    for (std::uint64_t i = 0; i < count; ++i) copy(first + i, store->slots[i], store->numbers[i]);
    tiers_->complete_store(host_keys(first, count));
  }
  // Stores blocks and waits until the folder has `num_held` blocks.
  void store_to_folder(std::uint64_t first, std::uint64_t count, std::uint32_t num_held) {
    store(first, count);
    wait([num_held](const TieredOffloadStats& stats) { return stats.num_held == num_held; });
  }
  // Prepares the store of a block that the worker has not copied. Returns its slot and number.
  std::pair<OffloadSlot, std::uint64_t> begin_store(std::uint64_t block_number) {
    const std::optional<StoreWithNumbers> store = tiers_->prepare_store(host_keys(block_number, 1));
    EXPECT_TRUE(store && store->keys.size() == 1);
    return {store->slots[0], store->numbers[0]};
  }

  // Asks like a scheduler, in step after step; no call may take long.
  std::uint32_t look_up(std::uint64_t first, std::uint64_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      if (const std::optional<std::uint32_t> found = tiers_->lookup(host_keys(first, count))) return *found;
      if (std::chrono::steady_clock::now() > end) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "lookup answers 'ask again' forever";
    return 0;
  }

  std::uint32_t load(std::uint64_t first, std::uint64_t count) {
    const std::uint32_t found = look_up(first, count);
    const auto slots = tiers_->prepare_load(host_keys(first, found));
    EXPECT_TRUE(slots);
    for (std::uint32_t i = 0; slots && i < found; ++i) {
      const std::vector<std::byte> block = tier_block(first + i, 2 * kHostPageBytes);
      for (std::size_t t = 0; t < 2; ++t)
        EXPECT_TRUE(std::equal(block.begin() + t * kHostPageBytes, block.begin() + (t + 1) * kHostPageBytes,
                               tensors_[t].begin() + (*slots)[i].value * kHostPageBytes))
            << "block " << first + i << " has wrong bytes";
    }
    EXPECT_TRUE(tiers_->complete_load(host_keys(first, found)));
    return found;
  }

  OffloadState state_of(std::uint64_t number) { return tiers_->find(host_keys(number, 1)).at(0); }
  bool comes_to(std::uint64_t number, OffloadState state) {
    return comes_true([&] { return state_of(number) == state; });
  }
  void wait(const std::function<bool(const TieredOffloadStats&)>& condition) {
    EXPECT_TRUE(comes_true([&] { return condition(tiers_->stats()); }));
  }
  TieredOffload& tiers() { return *tiers_; }

  TieredOffloadOptions basic_options() {
    TieredOffloadOptions options;
    options.host.num_slots = kNumHostSlots;
    for (std::vector<std::byte>& tensor : tensors_) options.pages.push_back({.begin = tensor.data(), .page_bytes = kHostPageBytes});
    options.written.push_back(written_.data());
    options.folder = "/nowhere";
    options.budget_bytes = 1 << 20;
    return options;
  }

 private:
  std::array<std::vector<std::byte>, 2> tensors_{std::vector<std::byte>(kHostPageBytes * kNumHostSlots),
                                                 std::vector<std::byte>(kHostPageBytes* kNumHostSlots)};
  std::vector<std::uint64_t> written_ = std::vector<std::uint64_t>(kNumHostSlots);
  std::unique_ptr<TieredOffload> tiers_;
};

}  // namespace quire::test
