#pragma once
// Pins: finished requests whose blocks are kept for the next turn of their job, each until a given time. A job has at most one pin.
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
  double expiry = 0.0;  // in seconds
};

// Few pins exist (one per job with a running tool), so the list is searched linearly. The earliest expiry is cached, because every step
// checks whether a pin has expired.
class PinList {
 public:
  // Returns the pins in the order in which they were added.
  [[nodiscard]] std::span<const Pin> all() const { return pins_; }
  // Returns the earliest expiry, or nullopt if no pin exists.
  [[nodiscard]] std::optional<double> next_expiry() const;

  // Adds a pin. The job of the pin must not have another pin.
  void add(Pin pin);
  // Remove and return one pin; nullopt: no such pin exists.
  // - take(): the pin of the job.
  // - take_oldest(): the pin that expires first; of several such pins, the pin that was added first.
  // - take_expired(): of the pins that have expired, the pin that was added first.
  std::optional<Pin> take(const Job& job);
  std::optional<Pin> take_oldest();
  std::optional<Pin> take_expired(double now);

  // Stops the program if a pin and its job are inconsistent, or the cached expiry is wrong.
  void check_invariants() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
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
