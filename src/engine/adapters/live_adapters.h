#pragma once
// The LoRA adapters of open requests, in which the worker looks up weights.
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "engine/adapters/adapter_lease.h"
#include "runtime/worker/adapter_source.h"

namespace quire {

// Holds the adapters of open requests for the threads that compute. Only these threads take the mutex. A thread that loads adapters may
// have to wait for a core (server/http/job_pool.h), and must not stop a step by holding the mutex meanwhile.
class LiveAdapters final : public AdapterSource {
 public:
  // Registers a lease, and returns a lease to use in its place. find() returns the adapter until the last copy of the returned lease is
  // destroyed. All copies must be destroyed before this object. Called on the engine thread.
  [[nodiscard]] SharedLease hold(SharedLease lease);
  [[nodiscard]] std::shared_ptr<const Adapter> find(std::int64_t lora_id) const override;

 private:
  struct AdapterUse {
    std::shared_ptr<const ResidentAdapter> resident;
    std::uint32_t num_holders = 0;
  };
  void release(std::int64_t id);

  mutable std::mutex mutex_;
  std::unordered_map<std::int64_t, AdapterUse> held_;
};

}  // namespace quire
