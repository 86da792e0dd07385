#pragma once
// Blocks that others put somewhere and take away again, so that it must be asked what there is: a store in the network (remote_store.h), or
// what other servers hold (peer_cache.h). Nothing that comes from there is believed before it is verified.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/tier/block_store.h"

namespace quire {

// Blocks, from the start.
struct SharedStoreStats {
  std::uint64_t num_stored = 0, num_loaded = 0, bytes_stored = 0, bytes_loaded = 0;
  std::uint64_t num_answered_loads = 0;  // well: with the block, or with none
  std::uint64_t bytes_read = 0;          // for loads, whatever became of them
  std::uint64_t num_absent = 0, num_refused = 0, num_given_up = 0;
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  std::uint64_t num_asked = 0, num_found = 0;
  double loading_s = 0.0;  // while at least one block was wanted
};

// Any thread.
class SharedStore : public BlockStore {
 public:
  // Which of the names it has, told once, by a thread of the store's; and which it could not be asked for. Nobody is told of a question
  // that `is_wanted` says no to before it is sent.
  struct Answer {
    std::vector<bool> has;
    bool is_whole = true;
  };
  virtual void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) = 0;
  // It goes from the store, if that does it.
  virtual void forget(const OffloadKey& name) = 0;
  // The same, and this store neither keeps nor gives it from now on: its bytes are not what they should be.
  virtual void forbid(const OffloadKey& name) = 0;
  // Looks whether and how fast it gives blocks; what comes is verified and dropped.
  virtual void try_loads() = 0;
  [[nodiscard]] virtual bool is_trying() const = 0;
  // What it can do at all.
  [[nodiscard]] virtual TierService service() const { return {}; }

  [[nodiscard]] virtual SharedStoreStats stats() const = 0;
  [[nodiscard]] virtual std::string last_problem() const = 0;
};

}  // namespace quire
