#pragma once
// An event sink of the core that forwards each event to several sinks in the given order, on the core's thread.
#include <utility>
#include <vector>

#include "quire/base/events.h"

namespace quire {

class EventFanOut final : public EventSink {
 public:
  explicit EventFanOut(std::vector<EventSink*> sinks) : sinks_(std::move(sinks)) {}
  void on_event(const Event& event) override {
    for (EventSink* sink : sinks_) sink->on_event(event);
  }

 private:
  std::vector<EventSink*> sinks_;
};

}  // namespace quire
