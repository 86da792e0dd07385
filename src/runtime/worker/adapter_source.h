#pragma once
// Interface for looking up the LoRA adapter that a plan names.
#include <cstdint>
#include <memory>

#include "runtime/model/weights/adapter.h"

namespace quire {

class AdapterSource {
 public:
  virtual ~AdapterSource() = default;
  // Returns the adapter of an open request; it always exists. `lora_id` is AdmittedRequest::lora_id and not 0. Called on the thread that
  // leads a step; must not wait.
  [[nodiscard]] virtual std::shared_ptr<const Adapter> find(std::int64_t lora_id) const = 0;
};

}  // namespace quire
