#pragma once
// Copies blocks of the KV cache to the slots of a store (a folder, or a store in the network) and back. A connector decides which block is
// in which slot, and gets the slot numbers for Transfer::places from assign(). A transfer fails when the store moves no block in its
// direction for too long, so no request waits forever. Bytes that arrive later are not written to the KV cache. With `cancels_late_stores`,
// a store also fails when a step would have to wait for it.
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
  // `timeout_seconds`: a transfer fails if, since its start, no block was moved in its direction for this time. `store_timeout_seconds`:
  // the limit for stores, if it differs. `cancels_late_stores`: wait() cancels a store.
  StoreTransport(std::shared_ptr<BlockStore> store, double timeout_seconds, bool cancels_late_stores = false,
                 std::optional<double> store_timeout_seconds = std::nullopt);
  ~StoreTransport() override;
  StoreTransport(const StoreTransport&) = delete;
  StoreTransport& operator=(const StoreTransport&) = delete;

  // Assigns the key to the slot and returns the slot's new number for Transfer::places. Transfers with an earlier number of the slot fail.
  // May be called on any thread.
  [[nodiscard]] std::uint64_t assign(std::uint32_t place, const OffloadKey& name);

  // Copies the bytes of a block of the KV cache. The caller must ensure that no thread writes to the block. Returns false if no KV cache is
  // attached. May be called on any thread.
  [[nodiscard]] bool read_block(std::uint32_t group, BlockId block, std::span<std::byte> into) const;

  // The store must have room for blocks of the largest group.
  void attach(const KvPages& pages, std::function<void()> notify) override;
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  void wait(TransferId transfer) override;
  void detach() override;

  // Returns the number of transfers that failed because of the timeout. May be called on any thread.
  [[nodiscard]] std::uint64_t num_timed_out(TransferDirection direction) const;

 private:
  struct PendingTransfer;
  // Key of a slot. Each assignment has a new generation, so that transfers with a number of an earlier assignment are refused.
  struct Assigned {
    OffloadKey name;
    std::uint32_t generation = 0;
  };

  [[nodiscard]] bool find(std::uint64_t number, std::uint32_t& place, OffloadKey& name) const;
  void submit(const std::shared_ptr<PendingTransfer>& pending, std::size_t index, std::uint64_t number);
  void on_block_done(const std::shared_ptr<PendingTransfer>& pending, std::size_t index, TierOutcome outcome);
  void end(PendingTransfer& pending, std::unique_lock<std::mutex>& lock);
  void cancel(const std::shared_ptr<PendingTransfer>& pending);
  void watch();

  const std::shared_ptr<BlockStore> store_;
  const std::array<std::chrono::steady_clock::duration, 2> timeout_;  // by direction
  const bool cancels_late_stores_;
  KvPages pages_;
  std::function<void()> notify_;
  mutable std::mutex pages_mutex_;  // held while read_block() reads the pages
  bool is_attached_ = false;        // guarded by pages_mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a transfer has ended, its callback has returned, or stops_ is set
  std::vector<Assigned> assigned_;   // by slot
  std::map<TransferId, std::shared_ptr<PendingTransfer>> open_;
  EndedTransfers ended_;
  std::array<std::chrono::steady_clock::time_point, 2> last_progress_{};  // time of the last moved block, by direction
  std::array<std::uint64_t, 2> num_timed_out_{};                          // by direction
  bool stops_ = false;
  std::uint32_t num_notifying_ = 0;  // ended transfers that have not finished their callback
  std::thread watch_;
};

}  // namespace quire
