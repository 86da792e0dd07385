#include "engine/requests/live_encoder_inputs.h"

#include <utility>

#include "base/check.h"

namespace quire {

std::shared_ptr<const RequestInputs> LiveEncoderInputs::hold(RequestId id, std::shared_ptr<const RequestInputs> inputs) {
  if (inputs == nullptr) return nullptr;
  const RequestInputs* const view = inputs.get();
  {
    const std::lock_guard lock(mutex_);
    QUIRE_CHECK(held_.emplace(id, std::move(inputs)).second, "a request ID is used once");
  }
  return {view, [this, id](const RequestInputs* /*view*/) { release(id); }};
}

std::shared_ptr<const RequestInputs> LiveEncoderInputs::find(RequestId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(id);
  return found == held_.end() ? nullptr : found->second;
}

void LiveEncoderInputs::release(RequestId id) {
  std::shared_ptr<const RequestInputs> last;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(id);
  last = std::move(found->second);
  held_.erase(found);
}

}  // namespace quire
