#pragma once
// What CONTINUUM knows of agents: their jobs, how long their tools take, and whose blocks stay between two turns. It has no clock; times
// are handed in. The rules are those of the public fork hungchun0201/vllm-pace (Apache-2.0) of vLLM 0.19.
#include <string_view>

#include "core/agent/job_table.h"
#include "core/agent/pin_list.h"
#include "core/agent/tool_times.h"
#include "quire/base/options.h"

namespace quire {

// Owned by schedule/jobs.h, there only under SchedulingPolicy::continuum. Called on the core's thread. Jobs and tools are named by clients,
// so both tables are bounded (ContinuumOptions).
class Agent {
 public:
  explicit Agent(const ContinuumOptions& options);

  // A turn of the job arrives: the gap since the one before belongs to the tool that ran in it, if its name is known.
  // `now` in s, of the call in which the turn was added. The gap is learned once: a second arrival before the next end learns nothing.
  void arrived(Job& job, double now);
  // A turn, not the job's last, is over and calls `tool` (empty: none is known). How long its blocks should stay, s; 0: not at all.
  double ended(Job& job, std::string_view tool, double now);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
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
