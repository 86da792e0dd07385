#pragma once
// The encoder inputs of open requests, or the encoder outputs for them, in which the worker looks up inputs. An entry exists from the step
// that takes a request until no plan refers to the request any more, because a preempted request is computed again.
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/worker/encoder_source.h"

namespace quire {

class LiveEncoderInputs final : public EncoderSource {
 public:
  // Registers the inputs, and returns a pointer to use in their place. find() returns the inputs until the returned pointer is destroyed,
  // which must be before this object is destroyed. Returns null for null. Called on the engine thread.
  [[nodiscard]] std::shared_ptr<const RequestInputs> hold(RequestId id, std::shared_ptr<const RequestInputs> inputs);
  [[nodiscard]] std::shared_ptr<const RequestInputs> find(RequestId id) const override;

 private:
  void release(RequestId id);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::shared_ptr<const RequestInputs>> held_;
};

}  // namespace quire
