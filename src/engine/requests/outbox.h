#pragma once
// Collects outputs during a step and delivers them in one call per sink. Belongs to the engine thread.
#include <cstddef>
#include <utility>
#include <vector>

#include "quire/engine.h"

namespace quire {

class Outbox {
 public:
  // Queues an output and returns a reference to it, valid until the next call.
  RequestOutput& send(OutputSink* sink, RequestOutput output) {
    outgoing_.push_back({sink, std::move(output), outgoing_.size()});
    return outgoing_.back().output;
  }
  // Delivers all outputs. A sink may be destroyed after its request's last output.
  void deliver();

 private:
  struct Outgoing {
    OutputSink* sink = nullptr;
    RequestOutput output;
    std::size_t index = 0;  // index among all outputs, which keeps the outputs of a request in order
  };
  std::vector<Outgoing> outgoing_;
};

}  // namespace quire
