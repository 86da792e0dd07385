#pragma once
// Pins: finished requests whose blocks stay for the next turn of their job, each until a time. One per job at most.
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/agent/job_table.h"
#include "quire/base/ids.h"

namespace quire {

struct Pin {
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [request, job, expiry] = self;
    form(request, job, expiry);
  }

  RequestId request;
  Job* job = nullptr;
  double expiry = 0.0;  // s
};

// There are few pins (one per job whose tool runs), so lists are searched from the front; the least expiry is kept, since every step asks
// whether one is due.
class PinList {
 public:
  // In the order in which they were added.
  [[nodiscard]] std::span<const Pin> all() const { return pins_; }
  // nullopt: there is none.
  [[nodiscard]] std::optional<double> next_expiry() const;

  // The job must have none.
  void add(Pin pin);
  // Each takes one out: of the job; whose expiry is the oldest (the first of equal ones); the first that has expired.
  std::optional<Pin> take(const Job& job);
  std::optional<Pin> take_oldest();
  std::optional<Pin> take_expired(double now);

  // Stops the program if a job does not know of its pin, or an earlier one is due than the list says.
  void check_invariants() const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [pins, next_expiry] = self;
    form(pins);
    if constexpr (Form::kReads) {
      for (const Pin& pin : std::exchange(pins, {})) {
        form.expect(pin.job != nullptr && !pin.job->is_pinned, "one pin per job");
        if (form.is_good()) self.add(pin);
      }
    }
  }

 private:
  Pin take_at(std::size_t index);

  std::vector<Pin> pins_;
  double next_expiry_ = std::numeric_limits<double>::infinity();  // the least
};

}  // namespace quire
