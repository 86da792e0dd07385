#pragma once
// Selects keys that were looked up often enough to be stored. Counts the look-ups of a limited number of keys, and forgets the least
// recently looked-up key first. Decisions equal vLLM's FilterReusedOffloadingManager (v0.19.0).
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/offload/key_index.h"

namespace quire {

// Owned by a ledger with OffloadOptions::store_threshold >= 2. Most prompts do not repeat, so a block that is looked up only once is not
// worth a write.
class ReuseFilter {
 public:
  // Returns an error if store_threshold < 2 or max_tracked_keys is not in [1, 2^28].
  static Result<std::unique_ptr<ReuseFilter>> create(std::int64_t store_threshold, std::int64_t max_tracked_keys);
  ReuseFilter(const ReuseFilter&) = delete;
  ReuseFilter& operator=(const ReuseFilter&) = delete;

  // Counts every key, including the keys after the first key that is missing in the tier.
  void count(std::span<const OffloadKey> keys);
  // Returns the keys that were counted often enough, in their order. Valid until the next call.
  std::span<const OffloadKey> eligible(std::span<const OffloadKey> keys);

  // A counted key, with its number of look-ups. snapshot() returns all counted keys, least recently looked up first.
  struct Counted {
    OffloadKey key;
    std::uint64_t count;
  };
  [[nodiscard]] std::vector<Counted> snapshot() const;
  void check_invariants() const;

 private:
  ReuseFilter(std::uint64_t store_threshold, std::uint32_t max_tracked_keys);
  // Returns an unused entry. If all entries are used, removes the oldest key and returns its entry.
  std::uint32_t take_entry();

  std::uint64_t store_threshold_;
  KeyIndex index_;
  std::vector<std::uint64_t> counts_;
  std::vector<IndexLink> links_;
  IndexList order_;
  std::vector<OffloadKey> eligible_;
};

}  // namespace quire
