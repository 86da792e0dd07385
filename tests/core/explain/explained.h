#pragma once
// A core that is stepped by hand, with an explainer that follows it.
#include <algorithm>
#include <vector>

#include "core/schedule/core_driver.h"
#include "quire/lab/explain.h"

namespace quire::test {

// Time advances by one second from a plan to its result, and by one second to the next plan.
class Explained {
 public:
  explicit Explained(const CoreConfig& config, CoreSeams seams = {}) : explainer(ExplainOptions::of(config)), driver(config, with(seams)) {
    explainer.follow(*driver.core);
  }

  [[nodiscard]] RequestExplanation of(std::uint64_t id) const { return explainer.explain(RequestId{id}, driver.now).value(); }
  [[nodiscard]] static double seconds(const std::vector<WaitFact>& waits, EventCause cause) {
    const auto found = std::ranges::find(waits, cause, &WaitFact::cause);
    return found == waits.end() ? 0.0 : found->seconds;
  }
  [[nodiscard]] static std::uint32_t missed(const RequestExplanation& facts, MissCause cause) {
    return facts.missed.at(static_cast<std::size_t>(cause));
  }

  Explainer explainer;
  CoreDriver driver;

 private:
  CoreSeams with(CoreSeams seams) {
    seams.events = &explainer;
    return seams;
  }
};

}  // namespace quire::test
