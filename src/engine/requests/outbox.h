#pragma once
// Outputs on their way to clients: gathered during a step, handed out in one call per sink. Belongs to the engine thread.
#include <cstddef>
#include <utility>
#include <vector>

#include "quire/engine.h"

namespace quire {

class Outbox {
 public:
  // The place is valid until the next call.
  RequestOutput& send(OutputSink* sink, RequestOutput output) {
    outgoing_.push_back({sink, std::move(output), outgoing_.size()});
    return outgoing_.back().output;
  }
  // A sink may be gone after its request's last output.
  void deliver();

 private:
  struct Outgoing {
    OutputSink* sink = nullptr;
    RequestOutput output;
    std::size_t place = 0;  // among all: those of a request stay in order
  };
  std::vector<Outgoing> outgoing_;
};

}  // namespace quire
