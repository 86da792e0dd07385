#pragma once
// The adapters of open requests, where the worker finds them.
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "engine/adapters/adapter_lease.h"
#include "runtime/worker/adapter_source.h"

namespace quire {

// Its lock is taken by threads that compute alone: those that load adapters may have to wait for a core (server/http/job_pool.h).
class LiveAdapters final : public AdapterSource {
 public:
  // The engine thread. The worker finds it until the last copy of what is answered has gone; all must be gone before this is.
  [[nodiscard]] SharedLease hold(SharedLease lease);
  [[nodiscard]] std::shared_ptr<const Adapter> find(std::int64_t lora_id) const override;

 private:
  struct Held {
    std::shared_ptr<const ResidentAdapter> resident;
    std::uint32_t num_holders = 0;
  };
  void release(std::int64_t id);

  mutable std::mutex mutex_;
  std::unordered_map<std::int64_t, Held> held_;
};

}  // namespace quire
