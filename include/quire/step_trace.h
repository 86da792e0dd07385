#pragma once
// Writes a record of each step (docs/trace.md) for a core that the host steps itself. An engine has its own trace (EngineOptions::trace).
//
//   const auto trace = StepTrace::create(options, config).value();
//   const auto core = Core::create(config, {.events = trace.get()}).value();
//   trace->follow(*core);
//   trace->planned(core->schedule(now));  // and so on, step by step
//
// The trace must outlive the core. All calls come from the thread that steps the core. They never wait for the disk, because a separate
// thread writes. While 16 steps wait to be written, further steps are dropped.
#include <cstdint>
#include <memory>
#include <string>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/base/events.h"
#include "quire/base/options.h"
#include "quire/base/plan.h"

namespace quire {

class Core;

// Writes a step trace. Pass it to the core as CoreSeams::events.
class QUIRE_API StepTrace : public EventSink {
 public:
  // Creates a trace. `connector` is the connector's name in the records; empty: no connector. Errors name the option: a number is out of
  // range, or (`trace`) the file cannot be written.
  static Result<std::unique_ptr<StepTrace>> create(const TraceOptions& options, const CoreConfig& config, std::string connector = {});

  // Reads the core's state from now on. Call it once, before the core's first step.
  virtual void follow(const Core& core) = 0;
  // Records a step. Call it after each schedule(), while the plan is valid.
  virtual void planned(const StepPlan& plan) = 0;
  // Waits until every planned step is written or dropped. Call it in a process that exits without destroying the trace.
  virtual void flush() = 0;
  // Return the number of steps written and dropped since the start.
  [[nodiscard]] virtual std::uint64_t num_written() const = 0;
  [[nodiscard]] virtual std::uint64_t num_dropped() const = 0;
};

}  // namespace quire
