#pragma once
// Says of each event when, in which step and for which request it happened, where the place that tells it does not know.
#include "base/check.h"
#include "quire/base/events.h"

namespace quire {

// The KV cache tells of blocks and does not know for whom it was called. So `current` is set before each call into it
// (Requests::kv_request).
class EventStamp final : public EventSink {
 public:
  explicit EventStamp(EventSink* to) : to_(to) {}

  [[nodiscard]] bool wanted() const { return to_ != nullptr; }
  // For parts that are handed a sink.
  [[nodiscard]] EventSink* sink() { return wanted() ? this : nullptr; }

  void on_event(const Event& event) override {
    QUIRE_CHECK(to_ != nullptr, "wanted() is asked first");
    Event stamped = event;
    stamped.step = step;
    stamped.time_s = now;
    if (event.what == EventKind::block_cached) stamped.owner = current;
    if (event.what == EventKind::block_evicted) stamped.beneficiary = current;
    to_->on_event(stamped);
  }

  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [step, now, current, to] = self;
    form(step, now, current);
  }

  StepId step{};        // the newest plan, or the one in the making
  double now = 0.0;     // of the call, s
  RequestId current{};  // whose blocks are being allocated or cached

 private:
  EventSink* to_;
};

}  // namespace quire
