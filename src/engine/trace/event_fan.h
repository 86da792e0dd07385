#pragma once
// One sink for the core, several behind it.
// Each event goes to all, in the order in which they were given, on the core's thread.
#include <utility>
#include <vector>

#include "quire/base/events.h"

namespace quire {

class EventFan final : public EventSink {
 public:
  explicit EventFan(std::vector<EventSink*> sinks) : sinks_(std::move(sinks)) {}
  void on_event(const Event& event) override {
    for (EventSink* sink : sinks_) sink->on_event(event);
  }

 private:
  std::vector<EventSink*> sinks_;
};

}  // namespace quire
