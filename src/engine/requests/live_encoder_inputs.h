#pragma once
// Holds the images or the audio of open requests, for the worker, which finds them by request id (RequestInputs; an encoded image contains
// its embeddings). An entry exists from the step in which the engine takes a request until no plan refers to the request any more. A
// preempted request is computed again and then needs its inputs again.
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
