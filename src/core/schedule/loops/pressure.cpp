#include "core/schedule/loops/pressure.h"

#include <cmath>

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {

void Pressure::look() {
  const PressureOptions& options = context_.config.pressure;
  if (options.pressure_high == 0.0) return;
  const double pressure = kv_.usage();
  if (is_stopped_ ? pressure < options.pressure_low : pressure > options.pressure_high) change(!is_stopped_);
}

void Pressure::change(bool is_stopped) {
  QUIRE_CHECK(is_stopped != is_stopped_, "an event reports a change");
  is_stopped_ = is_stopped;
  context_.totals.num_admission_stops += is_stopped ? 1 : 0;
  if (!context_.events.wanted()) return;
  const std::uint32_t num_blocks = kv_.pool().num_blocks() - 1;
  context_.events.on_event({.what = is_stopped ? EventKind::pressure_high : EventKind::pressure_low,
                            .cause = is_stopped ? EventCause::above_high : EventCause::below_low,
                            .amount = num_blocks - kv_.pool().num_free_blocks(),
                            .total = num_blocks});
}

bool Pressure::is_above_high() const {
  return kv_.usage() > context_.config.pressure.pressure_high;
}

bool Pressure::holds_back(const Request& request) const {
  const bool takes_all_anew = request.swapped != nullptr || Requests::num_blocks(request) == 0;
  return is_stopped_ && takes_all_anew && !is_idle();
}

std::uint32_t Pressure::num_min_free_blocks() const {
  if (is_idle()) return 0;
  const std::uint32_t num_blocks = kv_.pool().num_blocks() - 1;
  const auto num_free = static_cast<std::uint32_t>(std::ceil(context_.config.pressure.admission_watermark * num_blocks));
  QUIRE_CHECK(num_free <= num_blocks, "the watermark does not exceed the number of blocks");
  return num_free;
}

}  // namespace quire
