#pragma once
// The LoRA adapters that requests may name: the paths of their files, and the weights of the recently used adapters.
//
// A name refers to the file contents that were last loaded under it. Block hashes depend on these contents: new weights under an old name
// never match blocks of the old weights, and two names with the same contents share blocks and weights. A lease keeps its weights, whatever
// happens to the name.
//
// States of a set of weights, and the call that moves it:
//   resident  in memory, at most max_cpu_loras; the least recently used set without a lease is evicted   lease, load
//   left      no name refers to it (unload, or a load of other contents); freed with its last lease      unload, load
//   gone      not in memory; read again when a request names it                                          lease
//
// Files are read on the calling thread without the mutex; calls for the same name wait for that read. The mutex is held only briefly.
// Threads that compute never take the mutex: they find weights in LiveAdapters.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/adapters/adapter_lease.h"
#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/engine.h"

namespace quire {

// Reads an adapter from a folder. Called on any thread, possibly on several at the same time.
using AdapterLoader = std::function<Result<std::shared_ptr<const Adapter>>(const std::string& folder)>;

// All members may be called on any thread.
class AdapterRegistry {
 public:
  // Creates an empty registry. `max_resident` is at least 1; `logger` may be null.
  AdapterRegistry(std::uint32_t max_resident, AdapterLoader loader, std::shared_ptr<Logger> logger = nullptr);

  // Reads the folder and registers the adapter under this name. Errors: `invalid_argument` (an empty name or path, or a name in use without
  // `replace`), `overloaded` (all adapters that may be resident are in use), and the loader's errors.
  Result<AdapterInfo> load(const std::string& name, const std::string& path, bool replace);
  // Removes the name. Later requests for the name are rejected. Error: `not_found`.
  Result<void> unload(const std::string& name);
  // Returns a lease of the adapter. If the adapter is not resident, reads its files; the name then refers to their current contents.
  // Errors: `not_found`, `overloaded`, and the loader's errors.
  Result<SharedLease> lease(const std::string& name);
  // Returns a lease without reading files; null if the adapter is not resident. Errors: `not_found`.
  Result<SharedLease> lease_resident(const std::string& name);
  // Returns a lease without weights, for block hashes only. Errors: `not_found`.
  [[nodiscard]] Result<SharedLease> identify(const std::string& name) const;

  // Returns all registered adapters, sorted by name.
  [[nodiscard]] std::vector<AdapterInfo> list() const;
  [[nodiscard]] AdapterStats stats() const;

 private:
  // The weights of one file content (digest). An entry exists while a name or a lease refers to it.
  struct WeightSet {
    std::int64_t id = 0;
    std::uint64_t num_bytes = 0;
    std::uint32_t num_names = 0;
    std::shared_ptr<const ResidentAdapter> kept;  // null: left or gone
    std::weak_ptr<const ResidentAdapter> leased;  // expired: no lease and not resident
    std::list<std::string>::iterator place;       // position in order_ while `kept` is set
    bool occupies_slot = false;                   // the set has no name, but is in memory because of leases, so it occupies a slot
  };
  struct AdapterEntry {
    std::string path, digest;
    std::uint32_t rank = 0;
    std::uint64_t bytes = 0;
  };
  // A read in progress for one name.
  struct Loading {
    bool is_over = false;
    std::optional<Error> error;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Dropped = std::vector<std::shared_ptr<const ResidentAdapter>>;

  // The following functions are called with the mutex held. The caller frees `dropped` after it releases the mutex.
  [[nodiscard]] static Error unknown(const std::string& name);
  [[nodiscard]] SharedLease lease_of(const std::string& name, const AdapterEntry& entry);
  Result<void> make_room(Dropped& dropped);
  // Releases the mutex while the files are read.
  Result<void> read(Lock& lock, const std::string& name, const std::string& path, Dropped& dropped);
  void put(const std::string& name, const std::string& path, std::shared_ptr<const Adapter> weights, Dropped& dropped);
  void leave(const std::string& digest, Dropped& dropped);
  void forget_unused_sets();
  [[nodiscard]] std::uint32_t num_unnamed() const;
  // Waits until no thread reads this name's files. Returns the error of the last read for which it waited, if any.
  std::optional<Error> wait(Lock& lock, const std::string& name);
  [[nodiscard]] AdapterInfo describe(const std::string& name, const AdapterEntry& entry) const;

  const std::uint32_t max_resident_;
  const AdapterLoader loader_;
  const std::shared_ptr<Logger> logger_;
  mutable std::mutex mutex_;
  std::condition_variable loaded_;
  std::map<std::string, AdapterEntry> names_;
  std::unordered_map<std::string, WeightSet> sets_;  // by digest
  std::list<std::string> order_;                     // digests of the sets with `kept`, least recently used first
  std::vector<std::string> unnamed_;                 // digests of sets without a name; their leases may have ended
  std::unordered_map<std::string, std::shared_ptr<Loading>> loading_;
  std::int64_t next_id_ = 1;
  std::uint64_t num_loads_ = 0, num_evictions_ = 0, num_failures_ = 0;
};

}  // namespace quire
