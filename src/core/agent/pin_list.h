#pragma once
// Pins: finished requests that keep their blocks for the next turn of their job, each until a given time. A job has at most one.
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/agent/job_table.h"
#include "quire/base/ids.h"

namespace quire {

struct Pin {
  RequestId request;
  Job* job = nullptr;
  double expiry = 0.0;  // in s
};

// There are few pins (one per job with a running tool), so lists are searched from the front. The earliest expiry is cached, because every
// step checks whether a pin has expired.
class PinList {
 public:
  // Returns the pins in the order in which they were added.
  [[nodiscard]] std::span<const Pin> all() const { return pins_; }
  // nullopt: there are no pins.
  [[nodiscard]] std::optional<double> next_expiry() const;

  // The job must not have a pin.
  void add(Pin pin);
  // Each removes and returns one pin: the one of the job, the one that expires first (the first of equal ones), the first one that has
  // expired.
  std::optional<Pin> take(const Job& job);
  std::optional<Pin> take_oldest();
  std::optional<Pin> take_expired(double now);

  // Stops the program if a job and its pin disagree, or the cached expiry is wrong.
  void check_invariants() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [pins, next_expiry] = self;
    form(pins);
    if constexpr (Archive::kIsReading) {
      for (const Pin& pin : std::exchange(pins, {})) {
        form.expect(pin.job != nullptr && !pin.job->is_pinned, "a job has at most one pin");
        if (form.is_good()) self.add(pin);
      }
    }
  }

 private:
  Pin take_at(std::size_t index);

  std::vector<Pin> pins_;
  double next_expiry_ = std::numeric_limits<double>::infinity();  // earliest expiry of all pins
};

}  // namespace quire
