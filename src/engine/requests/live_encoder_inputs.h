#pragma once
// What encoders read for open requests, or have made of it, where the worker finds it: from the step that takes a request until no plan
// names it any more, because one that was preempted is computed again.
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/worker/encoder_source.h"

namespace quire {

class LiveEncoderInputs final : public EncoderSource {
 public:
  // The engine thread. The worker finds it until what is answered has gone, which must be before this is. Null for null.
  [[nodiscard]] std::shared_ptr<const RequestInputs> hold(RequestId id, std::shared_ptr<const RequestInputs> inputs);
  [[nodiscard]] std::shared_ptr<const RequestInputs> find(RequestId id) const override;

 private:
  void release(RequestId id);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::shared_ptr<const RequestInputs>> held_;
};

}  // namespace quire
