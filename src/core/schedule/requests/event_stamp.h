#pragma once
// Adds the time and the step to each event, and the request where the event's source does not know it.
#include "base/check.h"
#include "quire/base/events.h"

namespace quire {

// The KV cache reports blocks and does not know for which request it was called, so `current` is set before each call of the cache
// (Requests::kv_request).
class EventStamp final : public EventSink {
 public:
  explicit EventStamp(EventSink* to) : to_(to) {}

  [[nodiscard]] bool wanted() const { return to_ != nullptr; }
  // Returns the event sink, or null if events are off.
  [[nodiscard]] EventSink* sink() { return wanted() ? this : nullptr; }

  void on_event(const Event& event) override {
    QUIRE_CHECK(to_ != nullptr, "wanted was called before");
    Event stamped = event;
    stamped.step = step;
    stamped.time_s = now;
    if (event.what == EventKind::block_cached) stamped.owner = current;
    if (event.what == EventKind::block_evicted) stamped.beneficiary = current;
    to_->on_event(stamped);
  }

  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [step, now, current, to] = self;
    form(step, now, current);
  }

  StepId step{};        // the newest plan, or the plan being made
  double now = 0.0;     // time of the call, s
  RequestId current{};  // request for which blocks are allocated or cached

 private:
  EventSink* to_;
};

}  // namespace quire
