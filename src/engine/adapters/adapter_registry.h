#pragma once
// The LoRA adapters that requests may name: where their files are, and the weights of recently used ones.
//
// A name stands for the bytes that were last loaded under it. Block hashes use these bytes: new weights under an old name never match the
// blocks of the old weights, and two names of the same bytes share blocks and weights. A lease keeps its weights, whatever happens to the
// name.
//
// States of a set of weights, and the call that moves it:
//   resident  in memory, at most max_cpu_loras; the least recently used set without a lease is evicted   lease, load
//   left      no name has it (unload, or other bytes under its name); freed with its last lease          unload, load
//   gone      not in memory; read again when a request names it                                          lease
//
// Files are read on the calling thread without the mutex; calls for the same name wait for that read. The mutex is held for moments, and
// never taken by a thread that computes: such threads find weights in LiveAdapters.
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

// Reads an adapter from a folder. Called on any thread, several at the same time.
using AdapterLoader = std::function<Result<std::shared_ptr<const Adapter>>(const std::string& folder)>;

// Any thread may call the members.
class AdapterRegistry {
 public:
  // `max_resident` is at least 1; `logger` may be null.
  AdapterRegistry(std::uint32_t max_resident, AdapterLoader loader, std::shared_ptr<Logger> logger = nullptr);

  // Reads the folder and registers it under this name. Errors: `invalid_argument` (an empty name or path, or a known name without
  // `replace`), `overloaded` (all adapters that may be resident are in use), and the loader's errors.
  Result<AdapterInfo> load(const std::string& name, const std::string& path, bool replace);
  // Removes the name; requests with it are refused from now on. Errors: `not_found`.
  Result<void> unload(const std::string& name);
  // Returns a lease of the adapter. If it is not resident, its files are read, and the name then stands for their current bytes. Errors:
  // `not_found`, `overloaded`, and the loader's errors.
  Result<SharedLease> lease(const std::string& name);
  // Returns a lease without reading files; null if the adapter is not resident. Errors: `not_found`.
  Result<SharedLease> lease_resident(const std::string& name);
  // Returns a lease without weights, for block hashes only. Errors: `not_found`.
  [[nodiscard]] Result<SharedLease> identify(const std::string& name) const;

  // Returns all known adapters, sorted by name.
  [[nodiscard]] std::vector<AdapterInfo> list() const;
  [[nodiscard]] AdapterStats stats() const;

 private:
  // The weights of some bytes. An entry exists while a name or a lease refers to it.
  struct WeightSet {
    std::int64_t id = 0;
    std::uint64_t num_bytes = 0;
    std::uint32_t num_names = 0;
    std::shared_ptr<const ResidentAdapter> kept;  // null: left or gone
    std::weak_ptr<const ResidentAdapter> leased;  // expired: no lease and not resident
    std::list<std::string>::iterator place;       // position in order_ while `kept` is set
    bool occupies_slot = false;                   // without a name: leases keep it in memory, so it occupies a slot
  };
  struct AdapterEntry {
    std::string path, digest;
    std::uint32_t rank = 0;
    std::uint64_t bytes = 0;
  };
  // A read in progress for a name.
  struct Loading {
    bool is_over = false;
    std::optional<Error> error;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Dropped = std::vector<std::shared_ptr<const ResidentAdapter>>;

  // The mutex must be held for all of the following. The caller frees the dropped weights after it releases the mutex.
  [[nodiscard]] static Error unknown(const std::string& name);
  [[nodiscard]] SharedLease lease_of(const std::string& name, const AdapterEntry& entry);
  Result<void> make_room(Dropped& dropped);
  // Releases the mutex while it reads.
  Result<void> read(Lock& lock, const std::string& name, const std::string& path, Dropped& dropped);
  void put(const std::string& name, const std::string& path, std::shared_ptr<const Adapter> weights, Dropped& dropped);
  void leave(const std::string& digest, Dropped& dropped);
  void forget_unused_sets();
  [[nodiscard]] std::uint32_t num_unnamed() const;
  // Waits until no thread reads for this name. Returns the error of the last read that it waited for, if any.
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
