#pragma once
// The record of each step (docs/trace.md) of a core that one steps oneself; an engine keeps its own (EngineOptions::trace).
//
//   const auto trace = StepTrace::create(options, config).value();
//   const auto core = Core::create(config, {.events = trace.get()}).value();
//   trace->follow(*core);
//   trace->planned(core->schedule(now));  // and so on, step by step
//
// It must outlive the core. All calls on the thread that steps the core, which never waits for the disk: a thread of the trace's own
// writes. Where that is 16 steps behind, whole steps are left out.
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

class QUIRE_API StepTrace : public EventSink {
 public:
  // `connector`: who loads and stores, as the records name it; empty: nobody. Errors name the option: a number out of range, or `trace`, a
  // file that cannot be written.
  static Result<std::unique_ptr<StepTrace>> create(const TraceOptions& options, const CoreConfig& config, std::string connector = {});

  // Once, before the core's first step.
  virtual void follow(const Core& core) = 0;
  // After each schedule(), while its plan is valid.
  virtual void planned(const StepPlan& plan) = 0;
  // Waits for the disk: what was planned is written, or lost, when this returns. For the end of a process that destroys nothing.
  virtual void flush() = 0;
  // Steps, since the start.
  [[nodiscard]] virtual std::uint64_t num_written() const = 0;
  [[nodiscard]] virtual std::uint64_t num_dropped() const = 0;
};

}  // namespace quire
