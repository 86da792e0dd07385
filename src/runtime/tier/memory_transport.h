#pragma once
// Copies blocks of the KV cache to numbered slots in host memory and back. The planner of the transfers decides which block is in which
// slot. A load yields the bytes that were last stored in the slot under the slot's assigned key; otherwise the completion lists the block
// as bad. A failed store leaves the slot unchanged.
//
// States of a slot, and what moves it between them:
//   empty    no block                      create(); a load or read() with bytes that do not verify
//   storing  a block is being copied in    a store
//   held     a block                       the end of a store
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/usable_memory.h"
#include "quire/base/error.h"
#include "quire/offload.h"
#include "quire/transport.h"
#include "runtime/tier/ended_transfers.h"
#include "runtime/tier/tier_table.h"

namespace quire {

struct MemoryTransportOptions {
  std::uint32_t num_places = 0;
  std::uint64_t block_bytes = 0;  // of the largest block; at most 1 GiB
  // Stores use little time of cores that other threads want (base/cpu_share.h), unless a step waits for the store. While cores are idle, a
  // thread touches the pages of empty slots in advance, because the first touch of a page costs more than a copy into it.
  bool yields_cores = false;
  // Returns the memory that this process can still use. Slots are touched in advance only while enough is left.
  std::function<std::uint64_t()> usable_memory = usable_memory_bytes;
};

// Counts of blocks since the start.
struct MemoryTransportStats {
  std::uint64_t num_stored = 0, num_loaded = 0;
  std::uint64_t bytes_stored = 0, bytes_loaded = 0;
  double seconds_stored = 0.0, seconds_loaded = 0.0;  // of copying and checking, without the time in the queue
  std::uint64_t num_absent = 0;                       // the block is not in its slot, or the slot number is outdated
  std::uint64_t num_refused = 0;                      // loads of bytes that did not verify
  std::uint64_t num_in_use = 0;                       // stores to a slot with a store or a load in flight
};

// Used for the DRAM tier and for swap. assign() gives a slot a generation. Swap does not call assign(): its transfers use the plain numbers
// of the slots.
class MemoryTransport final : public Transport {
 public:
  // Reserves the memory. Errors name `num_places` or `block_bytes`.
  static Result<std::unique_ptr<MemoryTransport>> create(const MemoryTransportOptions& options);
  ~MemoryTransport() override;
  MemoryTransport(const MemoryTransport&) = delete;
  MemoryTransport& operator=(const MemoryTransport&) = delete;

  // Assigns the key to the slot and returns the slot's new number for Transfer::places. Transfers with an earlier number of the slot fail.
  // A slot without an assignment has no key and is used by its plain number. May be called on any thread.
  [[nodiscard]] std::uint64_t assign(std::uint32_t place, const OffloadKey& name);
  // Copies the block that a transfer with this number stored. Returns false if the slot does not hold the block or the bytes do not verify.
  // `into` must have the size of the stored block. A store to the slot waits until the copy has ended. May be called on any thread.
  bool read(std::uint64_t number, std::span<std::byte> into);
  // Returns whether the slot still holds the block that was stored with this number. May be called on any thread.
  [[nodiscard]] bool holds(std::uint64_t number) const;
  [[nodiscard]] std::uint32_t num_places() const { return static_cast<std::uint32_t>(places_.size()); }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  // May be called on any thread.
  [[nodiscard]] MemoryTransportStats stats() const;
  // Returns the memory of a slot; public for tests.
  [[nodiscard]] std::span<std::byte> memory_of(std::uint32_t place) { return {memory_.get() + place * place_bytes_, block_bytes_}; }

  // The slots must have room for blocks of the largest group.
  void attach(const KvPages& pages, std::function<void()> notify) override;
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  // Copies, on the calling thread, the blocks whose copies have not begun, and waits for all other blocks of the transfer.
  void wait(TransferId transfer) override;
  void detach() override;

 private:
  enum class SlotState : std::uint8_t { empty, storing, held };
  enum class CopyOutcome : std::uint8_t { done, absent, refused, in_use };
  // Guarded by mutex_. The state guards the bytes: only the thread that has set `storing` writes them, or start_next() while the slot is
  // empty.
  struct Place {
    OffloadKey name;               // assigned
    std::uint32_t generation = 0;  // assigned
    SlotState state = SlotState::empty;
    std::uint32_t num_loads = 0;          // in flight
    std::uint32_t num_reads = 0;          // in flight
    std::uint32_t stored_generation = 0;  // storing, held: the generation at the store
    OffloadKey stored_name;               // storing, held: the key of the block
    std::uint32_t group = 0;              // storing, held: the cache group of the block
    Checksum checksum{};                  // held
  };
  struct Unmap {
    std::uint64_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  struct PendingTransfer;
  using Queue = std::deque<std::shared_ptr<PendingTransfer>>;
  using Lock = std::unique_lock<std::mutex>;

  MemoryTransport(std::unique_ptr<std::byte[], Unmap> memory, const MemoryTransportOptions& options, std::uint64_t place_bytes);
  void run(Queue& queue);
  // Touches the memory of the next empty slot. Stops touching slots for good if the machine has little memory left.
  void start_next(Lock& lock);
  [[nodiscard]] bool is_held(const Place& place, std::uint64_t number) const {
    return place.generation == number >> 32U && place.state == SlotState::held && place.stored_generation == place.generation &&
           place.stored_name == place.name;
  }
  // Copies the next block of a transfer that has at least one block left. Releases the lock during the copy.
  void copy_next_block(Lock& lock, const std::shared_ptr<PendingTransfer>& pending);
  CopyOutcome store(Lock& lock, const PendingTransfer& pending, std::size_t index);
  CopyOutcome load(Lock& lock, const PendingTransfer& pending, std::size_t index);
  void count(const PendingTransfer& pending, CopyOutcome outcome, double seconds);
  void end(Lock& lock, const PendingTransfer& pending);
  // Return the bytes of a group's block in a slot, and their checksum.
  [[nodiscard]] std::span<std::byte> payload(std::uint32_t place, std::uint32_t group);
  [[nodiscard]] static Checksum checksum_of(std::uint32_t place, const Place& stored, std::span<const std::byte> bytes);

  const std::unique_ptr<std::byte[], Unmap> memory_;
  const std::uint64_t block_bytes_, place_bytes_;
  const bool yields_cores_;
  const std::function<std::uint64_t()> usable_memory_;
  KvPages pages_;
  std::function<void()> notify_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a transfer was added or has ended, reads of a slot have ended, or stops_ is set
  std::vector<Place> places_;
  std::size_t num_untouched_ = 0;  // slots with lower numbers are untouched; the ledger assigns the last slots first
  std::map<TransferId, std::shared_ptr<PendingTransfer>> open_;
  Queue stores_, loads_;
  EndedTransfers ended_;
  MemoryTransportStats stats_;
  bool stops_ = false;
  std::thread store_thread_, load_thread_;
};

}  // namespace quire
