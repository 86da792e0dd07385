#pragma once
// Counts the asked keys, the loads and the stores of a `SharedStore` (shared_store.h). Also keeps the offload keys of recently moved
// blocks, with which a store that is not in use is tested.
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/remote/shared_store.h"

namespace quire {

// Any thread may call the functions.
class SharedStoreCounters {
 public:
  // A load is open from load_started() to ended().
  void load_started();
  void ended(const TierJob& job, TierOutcome outcome);
  void asked(std::uint64_t num_names);
  void found(std::uint64_t num_names);
  void read(std::uint64_t num_bytes);

  // Loads recently moved blocks, or `otherwise` if no block was moved. The store verifies and drops the blocks. `group_bytes`: size of a
  // block, by cache group.
  void probe_loads(BlockStore& store, const std::vector<std::uint64_t>& group_bytes, std::vector<OffloadKey> otherwise);
  // Begin and end a probe without a load. The probe counts as an answered load or as a failed load.
  void probe_started();
  void probe_finished(bool is_answered);
  [[nodiscard]] bool is_probing() const;

  [[nodiscard]] SharedStoreStats stats() const;

 private:
  void count_loading(std::int32_t by);

  mutable std::mutex mutex_;
  // `mutex_` guards all members below.
  SharedStoreStats stats_;
  std::int32_t num_loading_ = 0;
  std::uint32_t num_probes_ = 0;  // probes in progress
  std::chrono::steady_clock::time_point loading_since_;
  std::vector<OffloadKey> recent_;  // stored or loaded lately; the entry at `next_recent_` is replaced next
  std::size_t next_recent_ = 0;
};

}  // namespace quire
