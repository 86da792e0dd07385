#include "engine/adapters/live_adapters.h"

#include <utility>

#include "base/check.h"

namespace quire {

SharedLease LiveAdapters::hold(SharedLease lease) {
  if (lease == nullptr) return nullptr;
  const std::int64_t id = lease->resident->id;
  {
    const std::lock_guard lock(mutex_);
    AdapterUse& held = held_[id];
    held.resident = lease->resident;
    ++held.num_holders;
  }
  const AdapterLease* const view = lease.get();
  return {view, [this, id, lease = std::move(lease)](const AdapterLease* /*view*/) { release(id); }};
}

std::shared_ptr<const Adapter> LiveAdapters::find(std::int64_t lora_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(lora_id);
  QUIRE_CHECK(found != held_.end(), "an open request holds its adapter");
  // Returns the weights instead of the lease, because a worker keeps them until its next step, which may be long after the request has
  // ended.
  return found->second.resident->weights;
}

void LiveAdapters::release(std::int64_t id) {
  std::shared_ptr<const ResidentAdapter> last;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(id);
  if (--found->second.num_holders > 0) return;
  last = std::move(found->second.resident);
  held_.erase(found);
}

}  // namespace quire
