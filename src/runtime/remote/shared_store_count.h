#pragma once
// What a store that must be asked (shared_store.h) counts of its questions and loads, and the names that it is tried with while it is left
// out: those that were moved lately.
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/remote/shared_store.h"

namespace quire {

// Any thread.
class SharedStoreCount {
 public:
  // A load is counted from its coming to its end.
  void load_begins();
  void ended(const TierJob& job, TierOutcome outcome);
  void asked(std::uint64_t num_names);
  void found(std::uint64_t num_names);
  void read(std::uint64_t num_bytes);

  // Loads what was moved lately, or `otherwise` if nothing was; what comes is verified by the store and dropped. `group_bytes`: of a block.
  void try_loads(BlockStore& store, const std::vector<std::uint64_t>& group_bytes, std::vector<OffloadKey> otherwise);
  // A trial that loads nothing; it counts as a load that was answered, or failed.
  void trial_begins();
  void trial_ended(bool is_answered);
  [[nodiscard]] bool is_trying() const;

  [[nodiscard]] SharedStoreStats stats() const;

 private:
  void count_loading(std::int32_t by);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  SharedStoreStats stats_;
  std::int32_t num_loading_ = 0;
  std::uint32_t num_tried_ = 0;  // that are not over
  std::chrono::steady_clock::time_point loading_since_;
  std::vector<OffloadKey> recent_;  // stored or loaded lately, the next one to be replaced at next_recent_
  std::size_t next_recent_ = 0;
};

}  // namespace quire
