#pragma once
// A store to which other servers add blocks and from which they remove blocks: a store in the network (remote_store.h) or the blocks of
// other servers (peer_cache.h). The engine must ask which blocks the store has. All bytes from the store are verified before use.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/tier/block_store.h"

namespace quire {

// Totals since the start; counts are blocks.
struct SharedStoreStats {
  std::uint64_t num_stored = 0, num_loaded = 0, bytes_stored = 0, bytes_loaded = 0;
  std::uint64_t num_answered_loads = 0;  // loads that neither failed nor were refused
  std::uint64_t bytes_read = 0;          // read for loads, also for loads that did not succeed
  std::uint64_t num_absent = 0, num_refused = 0, num_cancelled = 0;
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  std::uint64_t num_asked = 0, num_found = 0;
  double loading_s = 0.0;  // time with at least one load queued or in flight
};

// Any thread may call the functions.
class SharedStore : public BlockStore {
 public:
  // Answer to ask(): which offload keys the store holds. `is_whole` is false if the store did not answer for some keys.
  struct Answer {
    std::vector<bool> has;
    bool is_whole = true;
  };
  virtual void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) = 0;
  // Removes the block from the store, if the store supports that.
  virtual void forget(const OffloadKey& name) = 0;
  // Like forget(). In addition, this object neither stores nor loads the block afterwards, because its bytes are corrupted.
  virtual void mark_untrusted(const OffloadKey& name) = 0;
  // Starts a test of whether and how fast the store returns blocks. Loaded blocks are verified and dropped.
  virtual void probe_loads() = 0;
  [[nodiscard]] virtual bool is_probing() const = 0;
  // Returns whether the store supports loads and stores.
  [[nodiscard]] virtual TierService service() const { return {}; }

  [[nodiscard]] virtual SharedStoreStats stats() const = 0;
  [[nodiscard]] virtual std::string last_problem() const = 0;
};

}  // namespace quire
