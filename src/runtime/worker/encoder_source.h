#pragma once
// Where a worker finds what the encoder is to read, which a plan only counts.
#include <memory>

#include "quire/ids.h"
#include "quire/multimodal.h"

namespace quire {

class EncoderSource {
 public:
  virtual ~EncoderSource() = default;
  // Of a request that a plan names (ScheduledRequest::encoder_inputs): it is there. Called on the thread that leads a step, which must not
  // wait.
  [[nodiscard]] virtual std::shared_ptr<const EncoderInput> find(RequestId id) const = 0;
};

}  // namespace quire
