#pragma once
// The jobs of agents under CONTINUUM: which requests are turns of a job, and when a job first entered a queue. Other policies have no jobs.
#include <optional>
#include <span>

#include "base/check.h"
#include "core/agent/agent.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Called when a request enters a queue or ends, on the core's thread. Clients choose the names of jobs, so names are separate per tenant,
// and the number of jobs is limited (ContinuumOptions::max_jobs).
class Jobs {
 public:
  explicit Jobs(const Context& context) : context_(context) {
    if (context.config.scheduler.policy == SchedulingPolicy::continuum) agent_.emplace(context.config.continuum);
  }

  [[nodiscard]] bool has_agent() const { return agent_.has_value(); }
  [[nodiscard]] Agent& agent() {
    QUIRE_CHECK(agent_.has_value(), "only the CONTINUUM policy has jobs");
    return *agent_;
  }
  // Returns null under other policies.
  [[nodiscard]] const Agent* find_agent() const { return agent_ ? &*agent_ : nullptr; }
  // Returns an empty list under other policies.
  [[nodiscard]] std::span<const Pin> pins() const { return agent_ ? agent_->pins.all() : std::span<const Pin>(); }

  // Returns the time at which the next pin expires, or nullopt if nothing is pinned.
  [[nodiscard]] std::optional<double> next_expiry() const { return agent_ ? agent_->pins.next_expiry() : std::nullopt; }

  void join(Request& request, double time);  // does nothing under other policies, like the next two functions
  void leave(Request& request);
  // Records the time at which the request's job first entered the queue through enqueue(). Other ways into a queue are not recorded.
  void note_entry(const Request& request, QueueName queue, double time);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, agent] = self;
    if (agent) form(*agent);  // the configuration decides whether an agent exists
  }

 private:
  const Context& context_;
  std::optional<Agent> agent_;
};

}  // namespace quire
