#pragma once
// Where a worker finds the adapter that a plan names.
#include <cstdint>
#include <memory>

#include "runtime/model/weights/adapter.h"

namespace quire {

class AdapterSource {
 public:
  virtual ~AdapterSource() = default;
  // Of an open request (AdmittedRequest::lora_id, not 0): it is there. Called on the thread that leads a step, which must not wait.
  [[nodiscard]] virtual std::shared_ptr<const Adapter> find(std::int64_t lora_id) const = 0;
};

}  // namespace quire
