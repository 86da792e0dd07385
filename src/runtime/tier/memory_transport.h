#pragma once
// Moves blocks of the KV cache to numbered places in host memory and back. What lies where is decided by who plans the transfers; what a
// load gives was stored last in that place, under the name that the place has now, or the block is bad. A store that fails leaves what was
// there.
//
// States of a place, and who moves it between them:
//   empty    nothing                       create(); a load whose bytes do not verify
//   storing  a block is being copied in    a store
//   held     a block                       a store that is over
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

#include "quire/base/error.h"
#include "quire/offload.h"
#include "quire/transport.h"
#include "runtime/tier/ended_transfers.h"
#include "runtime/tier/tier_table.h"

namespace quire {

struct MemoryTransportOptions {
  std::uint32_t num_places = 0;
  std::uint64_t block_bytes = 0;  // of the largest block; at most 1 GiB
  // Stores take little of cores that others want (base/core_share.h), unless they are waited for. So the memory is taken ahead of them,
  // while nobody wants the cores: its first touch costs more than all copies into it.
  bool gives_way = false;
};

// Blocks, from the start.
struct MemoryTransportStats {
  std::uint64_t num_stored = 0, num_loaded = 0;
  std::uint64_t bytes_stored = 0, bytes_loaded = 0;
  double seconds_stored = 0.0, seconds_loaded = 0.0;  // of copying and checking these; waiting for one's turn is left out
  std::uint64_t num_absent = 0;                       // loads of what its place does not hold, and numbers that mean nothing any more
  std::uint64_t num_refused = 0;                      // loads whose bytes did not verify
  std::uint64_t num_in_use = 0;                       // stores to a place that was being stored to or loaded from
};

// For the DRAM tier and for swap. With assign() a place carries a generation; places that are used by their own numbers (swap) have none.
class MemoryTransport final : public Transport {
 public:
  // Errors name `num_places` or `block_bytes`.
  static Result<std::unique_ptr<MemoryTransport>> create(const MemoryTransportOptions& options);
  ~MemoryTransport() override;
  MemoryTransport(const MemoryTransport&) = delete;
  MemoryTransport& operator=(const MemoryTransport&) = delete;

  // What Transfer::places says of a place that holds this name, or is to hold it, from now on; what was said of the place before fails. A
  // place that nobody asked this for has no name and goes by its own number. Any thread.
  [[nodiscard]] std::uint64_t assign(std::uint32_t place, const OffloadKey& name);
  // Copies what was stored in a place by a transfer that carried this number: all that was stored, and as it was stored, or false. A store
  // that comes meanwhile waits for it. Any thread.
  bool read(std::uint64_t number, std::span<std::byte> into);
  // Whether it would. Any thread.
  [[nodiscard]] bool holds(std::uint64_t number) const;
  [[nodiscard]] std::uint32_t num_places() const { return static_cast<std::uint32_t>(places_.size()); }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  // Any thread.
  [[nodiscard]] MemoryTransportStats stats() const;
  // What lies in a place, for tests.
  [[nodiscard]] std::span<std::byte> memory_of(std::uint32_t place) { return {memory_.get() + place * place_bytes_, block_bytes_}; }

  // The places must have room for blocks of the largest group.
  void attach(const KvPages& pages, std::function<void()> notify) override;
  void start(const Transfer& transfer) override;
  void poll(std::vector<TransferCompletion>& over) override;
  // Moves what is left of the transfer itself.
  void wait(TransferId transfer) override;
  void detach() override;

 private:
  enum class PlaceState : std::uint8_t { empty, storing, held };
  enum class Moved : std::uint8_t { done, absent, refused, in_use };
  // Guarded by mutex_; the bytes themselves by the state: nobody but the one who set `storing` writes them.
  struct Place {
    OffloadKey name;               // assigned
    std::uint32_t generation = 0;  // assigned
    PlaceState state = PlaceState::empty;
    std::uint32_t num_loads = 0;  // under way
    std::uint32_t num_reads = 0;  // the same
    std::uint32_t stored_as = 0;  // storing, held: the generation that it had then
    OffloadKey stored_name;       // storing, held: what
    std::uint32_t group = 0;      // storing, held: a block of which
    Checksum checksum{};          // held
  };
  struct Unmap {
    std::uint64_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  struct Moving;
  using Queue = std::deque<std::shared_ptr<Moving>>;
  using Lock = std::unique_lock<std::mutex>;

  MemoryTransport(std::unique_ptr<std::byte[], Unmap> memory, const MemoryTransportOptions& options, std::uint64_t place_bytes);
  void run(Queue& queue);
  // Takes the memory of one more place, or of none any more where the machine has little left.
  void take_one(Lock& lock);
  [[nodiscard]] bool is_held(const Place& place, std::uint64_t number) const {
    return place.generation == number >> 32U && place.state == PlaceState::held && place.stored_as == place.generation &&
           place.stored_name == place.name;
  }
  // The next block of a transfer that has one left; the lock is open meanwhile.
  void move_one(Lock& lock, const std::shared_ptr<Moving>& moving);
  Moved store(Lock& lock, const Moving& moving, std::size_t index);
  Moved load(Lock& lock, const Moving& moving, std::size_t index);
  void count(const Moving& moving, Moved moved, double seconds);
  void end(Lock& lock, const Moving& moving);
  // What a block of the group has in a place, and what is said of it.
  [[nodiscard]] std::span<std::byte> payload(std::uint32_t place, std::uint32_t group);
  [[nodiscard]] static Checksum checksum_of(std::uint32_t place, const Place& stored, std::span<const std::byte> bytes);

  const std::unique_ptr<std::byte[], Unmap> memory_;
  const std::uint64_t block_bytes_, place_bytes_;
  const bool gives_way_;
  KvPages pages_;
  std::function<void()> notify_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a transfer has come or ended, or the threads are to stop
  std::vector<Place> places_;
  std::size_t num_untaken_ = 0;  // places before this one; the ledger gives the last ones first
  std::map<TransferId, std::shared_ptr<Moving>> open_;
  Queue stores_, loads_;
  EndedTransfers ended_;
  MemoryTransportStats stats_;
  bool stops_ = false;
  std::thread store_thread_, load_thread_;
};

}  // namespace quire
