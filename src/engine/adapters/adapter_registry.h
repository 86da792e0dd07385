#pragma once
// The adapters that requests may name: where their files are, and the weights of those used lately.
//
// A name stands for the bytes that were loaded under it last. Blocks are called by these bytes: other weights under an old name never meet
// the old ones' blocks, and two names of the same bytes share blocks and weights. Whoever has a lease goes on with what he has, whatever
// becomes of the name.
//
// States of a set of weights, and who moves it:
//   resident  kept here, at most max_cpu_loras; the one used longest ago goes when nobody has a lease of it   lease, load
//   left      no name has it any more (unload, other bytes under its name); it goes with its last lease       unload, load
//   gone      read again when a request names it                                                              lease
//
// Files are read on the thread that asks, with no lock held; who asks for the same name meanwhile waits for that. The mutex is held for
// moments, and never taken by a thread that computes: those find weights in LiveAdapters.
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

// Reads a folder. Any thread, several at once.
using AdapterLoader = std::function<Result<std::shared_ptr<const Adapter>>(const std::string& folder)>;

// Any thread.
class AdapterRegistry {
 public:
  // `max_resident` is at least 1; `logger` may be null.
  AdapterRegistry(std::uint32_t max_resident, AdapterLoader loader, std::shared_ptr<Logger> logger = nullptr);

  // Reads the folder and makes it known under this name. Errors: `invalid_argument` (an empty name; one that is known, unless it is to be
  // replaced), `overloaded` (all that may be resident are in use), and those of the loader.
  Result<AdapterInfo> load(const std::string& name, const std::string& path, bool replace);
  // It is refused from now on. Errors: `not_found`.
  Result<void> unload(const std::string& name);
  // Reads its files where they are not resident: what they hold now is what the name stands for. Errors: `not_found`, `overloaded`, those
  // of the loader.
  Result<SharedLease> lease(const std::string& name);
  // Reads nothing: null where it is not resident. Errors: `not_found`.
  Result<SharedLease> lease_resident(const std::string& name);
  // What its blocks are called by, without weights. Errors: `not_found`.
  [[nodiscard]] Result<SharedLease> identify(const std::string& name) const;

  // By name.
  [[nodiscard]] std::vector<AdapterInfo> list() const;
  [[nodiscard]] AdapterStats stats() const;

 private:
  // Of some bytes: here while a name stands for them, or somebody has a lease.
  struct Set {
    std::int64_t id = 0;
    std::uint64_t num_bytes = 0;
    std::uint32_t num_names = 0;
    std::shared_ptr<const ResidentAdapter> kept;  // null: left, or gone
    std::weak_ptr<const ResidentAdapter> leased;  // while it is not gone
    std::list<std::string>::iterator place;       // in order_, where it is kept
    bool takes_place = false;                     // without names: who has a lease of it keeps it in memory
  };
  struct Named {
    std::string path, digest;
    std::uint32_t rank = 0;
    std::uint64_t bytes = 0;
  };
  // A file is being read for a name.
  struct Loading {
    bool is_over = false;
    std::optional<Error> error;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Dropped = std::vector<std::shared_ptr<const ResidentAdapter>>;

  // All of the following with the mutex held. What is dropped is freed by the caller when it is not.
  [[nodiscard]] static Error unknown(const std::string& name);
  [[nodiscard]] SharedLease lease_of(const std::string& name, const Named& named);
  Result<void> make_room(Dropped& dropped);
  // Lets go of the mutex while it reads.
  Result<void> read(Lock& lock, const std::string& name, const std::string& path, Dropped& dropped);
  void put(const std::string& name, const std::string& path, std::shared_ptr<const Adapter> weights, Dropped& dropped);
  void leave(const std::string& digest, Dropped& dropped);
  void forget_gone();
  [[nodiscard]] std::uint32_t num_left() const;
  // Until nobody reads for this name. What has become of that reading, if there was one.
  std::optional<Error> wait(Lock& lock, const std::string& name);
  [[nodiscard]] AdapterInfo describe(const std::string& name, const Named& named) const;

  const std::uint32_t max_resident_;
  const AdapterLoader loader_;
  const std::shared_ptr<Logger> logger_;
  mutable std::mutex mutex_;
  std::condition_variable loaded_;
  std::map<std::string, Named> names_;
  std::unordered_map<std::string, Set> sets_;  // by digest
  std::list<std::string> order_;               // digests of those that are kept, the one used longest ago first
  std::vector<std::string> left_;              // digests without a name, whose leases may have ended
  std::unordered_map<std::string, std::shared_ptr<Loading>> loading_;
  std::int64_t next_id_ = 1;
  std::uint64_t num_loads_ = 0, num_evictions_ = 0, num_failures_ = 0;
};

}  // namespace quire
