#include "engine/requests/live_encoder_inputs.h"

#include <utility>

#include "base/check.h"

namespace quire {

std::shared_ptr<const EncoderInput> LiveEncoderInputs::hold(RequestId id, std::shared_ptr<const EncoderInput> input) {
  const EncoderInput* const view = input.get();
  {
    const std::lock_guard lock(mutex_);
    QUIRE_CHECK(held_.emplace(id, std::move(input)).second, "an id is used once");
  }
  return {view, [this, id](const EncoderInput* /*view*/) { release(id); }};
}

std::shared_ptr<const EncoderInput> LiveEncoderInputs::find(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(id);
  QUIRE_CHECK(found != held_.end(), "a request that a plan names holds its input");
  return found->second;
}

void LiveEncoderInputs::release(RequestId id) {
  std::shared_ptr<const EncoderInput> last;  // freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(id);
  last = std::move(found->second);
  held_.erase(found);
}

}  // namespace quire
