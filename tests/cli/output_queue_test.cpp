#include "cli/output_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace quire {
namespace {

TEST(OutputQueue, MayBeDestroyedAfterItsLastOutputIsTaken) {
  // The sanitizers detect a delivery that touches the queue after it has handed over its outputs.
  for (int i = 0; i < 2000; ++i) {
    auto queue = std::make_unique<OutputQueue>();
    std::thread engine([sink = queue.get()] {
      std::vector<RequestOutput> outputs(1);
      outputs[0].finished = true;
      sink->deliver(std::move(outputs));
    });
    bool finished = false;
    while (!finished) finished = queue->take().back().finished;
    queue.reset();
    engine.join();
  }
}

}  // namespace
}  // namespace quire
