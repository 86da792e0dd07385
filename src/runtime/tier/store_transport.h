#pragma once
// Moves blocks of the KV cache to the places of a store and back, which is a folder or lies in the network. What lies where is decided by a
// connector beside it, which asks it for the numbers that a transfer carries. A transfer fails when the store has moved nothing in its
// direction for too long: no request waits for ever, and what comes later touches no block. So does a store for which a step would have to
// wait.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "quire/transport.h"
#include "runtime/tier/block_store.h"
#include "runtime/tier/ended_transfers.h"

namespace quire {

class StoreTransport final : public Transport {
 public:
  // `patience_seconds`: without a block that was moved in a transfer's direction, from its beginning on; `store_patience_seconds`: of
  // stores, where it is another one. `gives_up_stores`: wait() ends a store at once.
  StoreTransport(std::shared_ptr<BlockStore> store, double patience_seconds, bool gives_up_stores = false,
                 std::optional<double> store_patience_seconds = std::nullopt);
  ~StoreTransport() override;
  StoreTransport(const StoreTransport&) = delete;
  StoreTransport& operator=(const StoreTransport&) = delete;

  // What Transfer::places says of a place that holds this name, or is to hold it, from now on; what was said of the place before fails.
  // Any thread.
  [[nodiscard]] std::uint64_t assign(std::uint32_t place, const OffloadKey& name);

  // What a block of the KV cache holds, where somebody knows that nobody writes to it now. false: there is no KV cache any more. Any
  // thread.
  [[nodiscard]] bool read_block(std::uint32_t group, BlockId block, std::span<std::byte> into) const;

  // The store's blocks must have room for those of the largest group.
  void attach(const KvPages& pages, std::function<void()> notify) override;
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  void wait(TransferId transfer) override;
  void detach() override;

  // Transfers that have failed because nothing moved. Any thread.
  [[nodiscard]] std::uint64_t num_late(TransferDirection direction) const;

 private:
  struct Moving;
  // A new generation for each assignment: numbers that were given for what the place held before are refused.
  struct Assigned {
    OffloadKey name;
    std::uint32_t generation = 0;
  };

  [[nodiscard]] bool find(std::uint64_t number, std::uint32_t& place, OffloadKey& name) const;
  void submit(const std::shared_ptr<Moving>& moving, std::size_t index, std::uint64_t number);
  void block_over(const std::shared_ptr<Moving>& moving, std::size_t index, TierOutcome outcome);
  void end(Moving& moving, std::unique_lock<std::mutex>& lock);
  void give_up(const std::shared_ptr<Moving>& moving);
  void watch();

  const std::shared_ptr<BlockStore> store_;
  const std::array<std::chrono::steady_clock::duration, 2> patience_;  // by direction
  const bool gives_up_stores_;
  KvPages pages_;
  std::function<void()> notify_;
  mutable std::mutex pages_mutex_;  // held while read_block() reads them
  bool is_attached_ = false;        // guarded by it

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a transfer has ended, its notice is given, or the watch is over
  std::vector<Assigned> assigned_;   // by place
  std::map<TransferId, std::shared_ptr<Moving>> open_;
  EndedTransfers ended_;
  std::array<std::chrono::steady_clock::time_point, 2> moved_{};  // when a block last did, by direction
  std::array<std::uint64_t, 2> num_late_{};                       // the same
  bool stops_ = false;
  std::uint32_t num_notifying_ = 0;  // ends that are told, and whose notice is not given yet
  std::thread watch_;
};

}  // namespace quire
