#pragma once
// Agent state for the CONTINUUM policy: jobs, durations of tools, and the blocks that are kept between two turns. The agent has no clock:
// the caller passes times. The rules follow the public fork hungchun0201/vllm-pace (Apache-2.0) of vLLM 0.19.
#include <string_view>

#include "core/agent/job_table.h"
#include "core/agent/pin_list.h"
#include "core/agent/tool_times.h"
#include "quire/base/options.h"

namespace quire {

// Owned by schedule/requests/jobs.h, only under SchedulingPolicy::continuum. Called on the core's thread. Clients choose the names of jobs
// and tools, so both tables are limited in size (ContinuumOptions).
class Agent {
 public:
  explicit Agent(const ContinuumOptions& options);

  // Called when a turn of the job arrives, at time `now` in seconds. If the previous turn called a known tool, the time since the end of
  // that turn is recorded for the tool. It is recorded only once, even if several turns arrive before the next end.
  void arrived(Job& job, double now);
  // Called when a turn ends that is not the last one of its job. `tool` is the tool that the turn called; empty if unknown. Returns how
  // long its blocks should be kept, in seconds; 0: they are not kept.
  double ended(Job& job, std::string_view tool, double now);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [jobs, tools, pins, options] = self;
    form(jobs, tools, pins);
  }

  JobTable jobs;
  ToolTimes tools;
  PinList pins;

 private:
  const ContinuumOptions options_;
};

}  // namespace quire
