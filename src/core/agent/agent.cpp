#include "core/agent/agent.h"

#include "base/check.h"

namespace quire {

Agent::Agent(const ContinuumOptions& options) : jobs(options.max_jobs), tools(options.max_tools), options_(options) {}

void Agent::arrived(Job& job, double now) {
  QUIRE_CHECK(job.num_requests > 0, "the job of an arriving turn has a request");
  if (job.last_turn && !job.last_turn->tool.empty()) tools.learn(job.last_turn->tool, now - job.last_turn->time);
  job.last_turn.reset();
}

double Agent::ended(Job& job, std::string_view tool, double now) {
  QUIRE_CHECK(job.num_requests > 0, "the job of an ended turn has a request");
  job.last_turn = TurnEnd{now, std::string(tool)};
  if (tool.empty() || tools.mean_s(tool).value_or(0.0) > options_.longest_tool_s) return 0.0;
  return options_.pin_s;
}

}  // namespace quire
