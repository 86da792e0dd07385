#pragma once
// Lets requests begin together.
#include <gtest/gtest.h>

#include <future>

#include "quire/engine.h"

namespace quire {

// Pauses the engine during its lifetime: all requests submitted meanwhile begin together, however busy the machine is.
class PausedEngine {
 public:
  explicit PausedEngine(Engine& engine) : engine_(engine) {
    std::promise<bool> paused;
    engine_.pause({.mode = PauseMode::keep}, [&paused](const Result<bool>& done) { paused.set_value(done.value_or(false)); });
    EXPECT_TRUE(paused.get_future().get());
  }
  ~PausedEngine() {
    engine_.resume([](const Result<bool>& /*done*/) {});
  }
  PausedEngine(const PausedEngine&) = delete;
  PausedEngine& operator=(const PausedEngine&) = delete;

 private:
  Engine& engine_;
};

}  // namespace quire
