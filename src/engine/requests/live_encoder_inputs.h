#pragma once
// What the encoder reads for open requests, where the worker finds it: from the step that takes a request until no plan names it any more,
// because one that was preempted is encoded again.
#include <memory>
#include <mutex>
#include <unordered_map>

#include "quire/multimodal.h"
#include "runtime/worker/encoder_source.h"

namespace quire {

class LiveEncoderInputs final : public EncoderSource {
 public:
  // The engine thread. The worker finds it until what is answered has gone, which must be before this is.
  [[nodiscard]] std::shared_ptr<const EncoderInput> hold(RequestId id, std::shared_ptr<const EncoderInput> input);
  [[nodiscard]] std::shared_ptr<const EncoderInput> find(RequestId id) const override;

 private:
  void release(RequestId id);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::shared_ptr<const EncoderInput>> held_;
};

}  // namespace quire
