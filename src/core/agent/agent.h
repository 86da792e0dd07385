#pragma once
// Agent state for the CONTINUUM policy: jobs, how long tools take, and which blocks stay between two turns. It has no clock; the caller
// passes times. The rules follow the public fork hungchun0201/vllm-pace (Apache-2.0) of vLLM 0.19.
#include <string_view>

#include "core/agent/job_table.h"
#include "core/agent/pin_list.h"
#include "core/agent/tool_times.h"
#include "quire/base/options.h"

namespace quire {

// Owned by schedule/jobs.h, only under SchedulingPolicy::continuum. Called on the core's thread. Clients choose the names of jobs and
// tools, so both tables are bounded (ContinuumOptions).
class Agent {
 public:
  explicit Agent(const ContinuumOptions& options);

  // Called when a turn of the job arrives. The gap since the previous turn counts for the tool that ran in it, if its name is known. `now`
  // is the time of the call that added the turn, in s. A gap is learned once: a second arrival before the next end learns nothing.
  void arrived(Job& job, double now);
  // Called when a turn that is not the job's last ends and calls `tool` (empty: unknown). Returns how long its blocks should stay, in s; 0:
  // not at all.
  double ended(Job& job, std::string_view tool, double now);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
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
