#include "core/agent/pin_list.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

std::optional<double> PinList::next_expiry() const {
  return pins_.empty() ? std::nullopt : std::optional(next_expiry_);
}

void PinList::add(Pin pin) {
  QUIRE_CHECK(pin.job != nullptr && !pin.job->is_pinned, "a job has at most one pin");
  pin.job->is_pinned = true;
  pins_.push_back(pin);
  next_expiry_ = std::min(next_expiry_, pin.expiry);
}

void PinList::check_invariants() const {
  double least = std::numeric_limits<double>::infinity();
  for (const Pin& pin : pins_) {
    QUIRE_CHECK(pin.job != nullptr && pin.job->is_pinned && pin.job->num_requests > 0, "a pin belongs to a pinned job that has a request");
    QUIRE_CHECK(std::ranges::count(pins_, pin.job, &Pin::job) == 1, "a job occurs once in the pin list");
    least = std::min(least, pin.expiry);
  }
  QUIRE_CHECK(next_expiry_ == least, "next_expiry_ is the earliest expiry of all pins");
}

Pin PinList::take_at(std::size_t index) {
  const Pin pin = pins_.at(index);
  pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(index));
  QUIRE_CHECK(pin.job->is_pinned, "the job of a pin is marked as pinned");
  pin.job->is_pinned = false;
  next_expiry_ = std::numeric_limits<double>::infinity();
  for (const Pin& left : pins_) next_expiry_ = std::min(next_expiry_, left.expiry);
  return pin;
}

std::optional<Pin> PinList::take(const Job& job) {
  if (!job.is_pinned) return std::nullopt;
  const auto found = std::ranges::find(pins_, &job, &Pin::job);
  QUIRE_CHECK(found != pins_.end(), "a pinned job has a pin in the list");
  return take_at(static_cast<std::size_t>(found - pins_.begin()));
}

std::optional<Pin> PinList::take_oldest() {
  if (pins_.empty()) return std::nullopt;
  return take_at(static_cast<std::size_t>(std::ranges::min_element(pins_, {}, &Pin::expiry) - pins_.begin()));
}

std::optional<Pin> PinList::take_expired(double now) {
  if (now < next_expiry_) return std::nullopt;
  const auto found = std::ranges::find_if(pins_, [now](const Pin& pin) { return now >= pin.expiry; });
  return found != pins_.end() ? std::optional(take_at(static_cast<std::size_t>(found - pins_.begin()))) : std::nullopt;
}

}  // namespace quire
