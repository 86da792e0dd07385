#pragma once
// Copies blocks like a device. Each direction has an asynchronous stream, several copies are in flight at a time, and they finish out of
// order. A copy waits by an event for the earlier copy to or from the same slot. The KV cache is in device memory, and the slots are in
// host memory.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "quire/offload.h"
#include "quire/transport.h"

namespace quire::test {

class SimulatedDevice final : public Transport {
 public:
  explicit SimulatedDevice(std::uint32_t num_places, std::uint64_t seed = 1) : places_(num_places), seed_(seed) {}
  ~SimulatedDevice() override {
    if (!engines_.empty()) detach();
  }

  // Works like MemoryTransport::assign(). A slot that was never assigned is identified by its number.
  std::uint64_t assign(std::uint32_t place, const OffloadKey& name) {
    const std::lock_guard lock(mutex_);
    places_[place].name = name;
    return std::uint64_t{++places_[place].generation} << 32U | place;
  }
  [[nodiscard]] std::uint32_t num_places() const { return static_cast<std::uint32_t>(places_.size()); }

  void attach(const KvPages& pages, std::function<void()> notify) override {
    pages_ = pages;
    notify_ = std::move(notify);
    stops_ = false;
    for (const TransferDirection direction : {TransferDirection::load, TransferDirection::store})
      for (int i = 0; i < kEngines; ++i)
        engines_.emplace_back([this, direction, i] { run(direction, seed_ * 10 + static_cast<unsigned>(i)); });
  }
  void start(const Transfer& transfer) override {
    const std::lock_guard lock(mutex_);
    Open& open = open_[transfer.id];
    open.num_left = transfer.blocks.size();
    open.begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < transfer.blocks.size(); ++i)
      copies_.push_back({transfer.id, transfer.direction, transfer.group, i, transfer.blocks[i], transfer.places[i], false});
    changed_.notify_all();
  }
  void poll(std::vector<TransferCompletion>& over) override {
    const std::lock_guard lock(mutex_);
    told_ = std::exchange(over_, {});
    for (const Over& one : told_) over.push_back(one.completion), over.back().bad_blocks = one.bad;
  }
  void wait(TransferId transfer) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !open_.contains(transfer); });
  }
  void detach() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
      changed_.notify_all();
    }
    for (std::thread& engine : engines_) engine.join();
    engines_.clear();
    copies_.clear();
    open_.clear();
  }

 private:
  static constexpr int kEngines = 3;  // engines per direction

  struct Place {
    OffloadKey name, stored_name;
    std::uint32_t generation = 0;
    std::uint32_t group = 0;
    std::vector<std::byte> bytes = {};  // empty if nothing was stored
  };
  struct Copy {
    TransferId transfer;
    TransferDirection direction;
    std::uint32_t group;
    std::size_t index;  // index in the transfer
    BlockId block;
    std::uint64_t number;
    bool is_begun;

    [[nodiscard]] std::uint32_t place() const { return static_cast<std::uint32_t>(number); }
  };
  struct Open {
    std::size_t num_left = 0;
    std::uint64_t bytes = 0;
    std::map<std::size_t, BlockId> bad = {};  // by index in the transfer
    std::chrono::steady_clock::time_point begin;
  };
  struct Over {
    TransferCompletion completion;
    std::vector<BlockId> bad;
  };

  void run(TransferDirection direction, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::unique_lock lock(mutex_);
    while (!stops_) {
      const auto copy = find(direction);
      if (copy == copies_.end()) {
        changed_.wait(lock);
        continue;
      }
      copy->is_begun = true;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      lock.lock();
      if (stops_) return;
      const bool is_last = finish(*copy);
      copies_.erase(copy);
      changed_.notify_all();
      if (!is_last) continue;
      lock.unlock();
      notify_();
      lock.lock();
    }
  }
  // Returns the first copy of the stream that waits for no other copy.
  std::list<Copy>::iterator find(TransferDirection direction) {
    for (auto one = copies_.begin(); one != copies_.end(); ++one)
      if (!one->is_begun && one->direction == direction &&
          std::none_of(copies_.begin(), one, [&](const Copy& before) { return before.place() == one->place(); }))
        return one;
    return copies_.end();
  }
  // Returns whether the transfer of the copy has ended.
  bool finish(const Copy& copy) {
    Open& open = open_.at(copy.transfer);
    const std::uint64_t bytes = move(copy);
    open.bytes += bytes;
    if (bytes == 0) open.bad[copy.index] = copy.block;
    if (--open.num_left > 0) return false;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - open.begin;
    Over& over = over_.emplace_back();
    over.completion = {.transfer = copy.transfer,
                       .outcome = open.bad.empty() ? TransferOutcome::done : TransferOutcome::failed,
                       .bytes = open.bytes,
                       .seconds = seconds.count()};
    if (copy.direction == TransferDirection::load)
      for (const auto& [index, block] : open.bad) over.bad.push_back(block);
    open_.erase(copy.transfer);
    return true;
  }
  // Returns the bytes that were copied, or 0 on failure.
  std::uint64_t move(const Copy& copy) {
    Place& place = places_.at(copy.place());
    if (place.generation != copy.number >> 32U) return 0;
    const bool is_store = copy.direction == TransferDirection::store;
    if (is_store) {
      place.bytes.resize(pages_.layout->group_block_bytes(copy.group));
      place.stored_name = place.name;
      place.group = copy.group;
    } else if (place.bytes.empty() || place.stored_name != place.name || place.group != copy.group) {
      return 0;
    }
    std::byte* at = place.bytes.data();
    for (std::uint32_t tensor = 0; tensor < pages_.layout->groups[copy.group].layers.size(); ++tensor) {
      const std::span<std::byte> page = pages_.page(tensor, copy.block);
      std::memcpy(is_store ? at : page.data(), is_store ? page.data() : at, page.size());
      at += page.size();
    }
    return place.bytes.size();
  }

  KvPages pages_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> places_;
  std::list<Copy> copies_;  // submitted and not finished, in order of submission
  std::map<TransferId, Open> open_;
  std::vector<Over> over_, told_;
  std::uint64_t seed_;
  bool stops_ = false;
  std::vector<std::thread> engines_;
};

}  // namespace quire::test
