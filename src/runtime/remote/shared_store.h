#pragma once
// Blocks that other servers add and remove, so that the store must be asked which blocks it has: a store in the network (remote_store.h) or
// the blocks of other servers (peer_cache.h). Nothing from it is trusted before it is verified.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/tier/block_store.h"

namespace quire {

// Totals since the start; counts are blocks.
struct SharedStoreStats {
  std::uint64_t num_stored = 0, num_loaded = 0, bytes_stored = 0, bytes_loaded = 0;
  std::uint64_t num_answered_loads = 0;  // with the block, or with its absence
  std::uint64_t bytes_read = 0;          // for loads, whatever their outcome
  std::uint64_t num_absent = 0, num_refused = 0, num_cancelled = 0;
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  std::uint64_t num_asked = 0, num_found = 0;
  double loading_s = 0.0;  // while at least one load was open
};

// Any thread may call the functions.
class SharedStore : public BlockStore {
 public:
  // Answer to ask(): which offload keys the store holds. `is_whole` is false if some of them could not be asked for. `over` is called at
  // most once, on a thread of the store; it may not be called if `is_wanted` returns false before the question is sent.
  struct Answer {
    std::vector<bool> has;
    bool is_whole = true;
  };
  virtual void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) = 0;
  // Removes the block from the store, if the store supports that.
  virtual void forget(const OffloadKey& name) = 0;
  // Like forget(). From now on this store neither stores nor loads the block, because its bytes are corrupted.
  virtual void mark_untrusted(const OffloadKey& name) = 0;
  // Tests whether and how fast the store gives blocks; loaded blocks are verified and dropped.
  virtual void probe_loads() = 0;
  [[nodiscard]] virtual bool is_probing() const = 0;
  // Returns whether the store supports loads and stores at all.
  [[nodiscard]] virtual TierService service() const { return {}; }

  [[nodiscard]] virtual SharedStoreStats stats() const = 0;
  [[nodiscard]] virtual std::string last_problem() const = 0;
};

}  // namespace quire
