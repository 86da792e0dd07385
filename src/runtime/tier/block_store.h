#pragma once
// Interface between `StoreTransport` (store_transport.h) and the storage of a tier's blocks: a folder, or a store in the network.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "quire/offload.h"

namespace quire {

enum class TierOutcome : std::uint8_t {
  done,
  absent,    // load: the slot does not hold the key, or its table entry was not read yet
  refused,   // load: the bytes do not verify; the slot is empty now
  failed,    // reading or writing failed, the store stops, or the slot is in use; a failed write leaves the slot empty
  cancelled  // the bytes are not needed any more
};

// A block to store or to load. One thread calls copy() and over() for all stores, and another thread for all loads. Both functions must not
// throw and must not submit a job of the other direction.
struct TierJob {
  enum class Verb : std::uint8_t { store, load };
  Verb verb = Verb::store;
  std::uint32_t place = 0;
  OffloadKey name;
  std::uint32_t bytes = 0;  // at most block_bytes; for a load: the stored size
  // Fills the bytes to store, or takes bytes that were loaded and verified. Returns false if the bytes are not needed any more.
  std::function<bool(std::span<std::byte> bytes)> copy;
  std::function<void(TierOutcome outcome)> over;  // called once
};

// All functions may be called on any thread.
class BlockStore {
 public:
  virtual ~BlockStore() = default;
  [[nodiscard]] virtual std::uint32_t num_places() const = 0;
  // Returns the size in bytes of the largest block that the store accepts.
  [[nodiscard]] virtual std::uint64_t block_bytes() const = 0;
  // Queues the job and returns. A load either yields the bytes that were last stored under the job's key, or is a miss (`absent` or
  // `refused`).
  virtual void submit(TierJob job) = 0;
};

}  // namespace quire
