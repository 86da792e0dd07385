#pragma once
// What a request that runs with an adapter holds until it has ended.
#include <cstdint>
#include <memory>
#include <string>

#include "quire/base/request.h"
#include "runtime/model/weights/adapter.h"

namespace quire {

// Weights that are in memory for as long as somebody holds them.
struct ResidentAdapter {
  std::int64_t id = 0;     // NewRequest::lora_id: another one for other bytes
  std::string block_name;  // NewRequest::lora_name: of the bytes, whatever the adapter is called
  std::shared_ptr<const Adapter> weights;
};

struct AdapterLease {
  std::string name;  // EngineRequest::adapter
  std::shared_ptr<const ResidentAdapter> resident;
};

using SharedLease = std::shared_ptr<const AdapterLease>;

// Null: the model alone. Views of the lease.
inline void name_adapter(const AdapterLease* adapter, NewRequest& request) {
  if (adapter == nullptr) return;
  request.lora_id = adapter->resident->id;
  request.lora_name = adapter->resident->block_name;
}

}  // namespace quire
