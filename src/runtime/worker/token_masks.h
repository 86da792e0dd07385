#pragma once
// Reads the masks of a step, which arrive in the plan's order.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// Reads masks in order. check_all_read() ends the program if a mask was out of order, because it would constrain the wrong request.
class MaskReader {
 public:
  explicit MaskReader(std::span<const TokenMask> masks) : left_(masks) {}

  // Returns the mask of a request, or an empty span if the request has no mask. Must be called for each request that samples, in the plan's
  // order.
  std::span<const std::uint32_t> of(RequestId id) {
    if (left_.empty() || left_.front().id != id) return {};
    const std::span<const std::uint32_t> allowed = left_.front().allowed;
    left_ = left_.subspan(1);
    return allowed;
  }
  void check_all_read() const { QUIRE_CHECK(left_.empty(), "each mask belongs to a request that samples, in the plan's order"); }

 private:
  std::span<const TokenMask> left_;
};

}  // namespace quire
