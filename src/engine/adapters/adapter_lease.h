#pragma once
// The lease that a request with a LoRA adapter holds until it ends.
#include <cstdint>
#include <memory>
#include <string>

#include "quire/base/request.h"
#include "runtime/model/weights/adapter.h"

namespace quire {

// The weights of an adapter. They stay in memory while a shared pointer to this object exists.
struct ResidentAdapter {
  std::int64_t id = 0;     // NewRequest::lora_id; different file contents have different ids
  std::string content_id;  // NewRequest::lora_name; identifies the file contents, not the adapter's name
  std::shared_ptr<const Adapter> weights;
};

struct AdapterLease {
  std::string name;  // EngineRequest::adapter
  std::shared_ptr<const ResidentAdapter> resident;
};

using SharedLease = std::shared_ptr<const AdapterLease>;

// Sets the adapter fields of `request` as views of the lease. Sets nothing if `adapter` is null (the base model).
inline void set_lora_fields(const AdapterLease* adapter, NewRequest& request) {
  if (adapter == nullptr) return;
  request.lora_id = adapter->resident->id;
  request.lora_name = adapter->resident->content_id;
}

}  // namespace quire
