#include "server/http/body_budget.h"

namespace quire {

bool BodyBudget::Lease::grow_to(std::uint64_t bytes) {
  if (bytes <= bytes_) return true;
  const std::uint64_t more = bytes - bytes_, total = budget_->total_bytes_;
  const std::uint64_t limit = bytes <= kSmallBodyBytes ? total : total - total / 8;
  std::uint64_t used = budget_->used_bytes_;
  do {
    if (used > limit || more > limit - used) return false;
  } while (!budget_->used_bytes_.compare_exchange_weak(used, used + more));
  bytes_ = bytes;
  return true;
}

}  // namespace quire
