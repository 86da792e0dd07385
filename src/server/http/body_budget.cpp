#include "server/http/body_budget.h"

#include <algorithm>

namespace quire {

std::shared_ptr<BodyBudget::Share> BodyBudget::share_of(const std::string& client) {
  if (shares_.size() >= sweep_threshold_) {
    std::erase_if(shares_, [](const auto& entry) { return entry.second.expired(); });
    sweep_threshold_ = std::max<std::size_t>(64, 2 * shares_.size());
  }
  std::weak_ptr<Share>& known = shares_[client];
  std::shared_ptr<Share> share = known.lock();
  if (share == nullptr) known = share = std::make_shared<Share>();
  return share;
}

bool BodyBudget::Lease::grow_to(std::uint64_t bytes) {
  if (bytes <= bytes_) return true;
  const std::uint64_t more = bytes - bytes_, total = budget_->total_bytes_;
  const std::uint64_t limit = bytes <= kSmallBodyBytes ? total : total - total / 8;
  const std::uint64_t held = share_->used_bytes;
  std::uint64_t used = budget_->used_bytes_;
  do {
    if (used > limit || more > limit - used) return false;
    if (held > bytes_ && held + more > 2 * (limit - used)) return false;
  } while (!budget_->used_bytes_.compare_exchange_weak(used, used + more));
  share_->used_bytes += more;
  bytes_ = bytes;
  return true;
}

void BodyBudget::Lease::release() {
  budget_->used_bytes_ -= bytes_;
  share_->used_bytes -= bytes_;
  bytes_ = 0;
}

void BodyPace::add(std::uint64_t bytes, Clock::time_point now) {
  if (rate_ == 0) return;
  const auto gained = std::chrono::milliseconds(std::min<std::uint64_t>(1000 * bytes / rate_, static_cast<std::uint64_t>(grace_.count())));
  deadline_ = std::min(now + grace_, std::max(deadline_, now) + gained);
}

bool BodyReaders::grow(BodyBudget::Lease& lease, std::uint64_t bytes, BodyPace::Clock::time_point now) {
  while (!lease.grow_to(bytes)) {
    Reader* slowest = nullptr;
    for (Reader& reader : list_) {
      const bool holds_more = reader.lease.share() == lease.share() || reader.lease.share()->used_bytes >= lease.share()->used_bytes;
      if (&reader.lease == &lease || reader.lease.bytes() == 0 || !holds_more || !reader.pace.is_slow(now)) continue;
      if (slowest == nullptr || slowest->lease.bytes() < reader.lease.bytes()) slowest = &reader;
    }
    if (slowest == nullptr) return false;
    slowest->lease.release();
    slowest->cut();
  }
  return true;
}

}  // namespace quire
