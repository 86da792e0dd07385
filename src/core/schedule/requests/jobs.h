#pragma once
// The jobs of agents under CONTINUUM: which turns are whose, and when a job entered a queue. Under other policies there are none.
#include <optional>
#include <span>

#include "base/check.h"
#include "core/agent/agent.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Called where a request enters a queue or ends, on the core's thread. A name of a job is a client's text: it is kept apart by tenant, and
// the number of jobs is bounded (ContinuumOptions::max_jobs).
class Jobs {
 public:
  explicit Jobs(const Context& context) : context_(context) {
    if (context.config.scheduler.policy == SchedulingPolicy::continuum) agent_.emplace(context.config.continuum);
  }

  [[nodiscard]] bool has_agent() const { return agent_.has_value(); }
  [[nodiscard]] Agent& agent() {
    QUIRE_CHECK(agent_.has_value(), "only CONTINUUM has jobs");
    return *agent_;
  }
  // Null under other policies.
  [[nodiscard]] const Agent* find_agent() const { return agent_ ? &*agent_ : nullptr; }
  // Under other policies none.
  [[nodiscard]] std::span<const Pin> pins() const { return agent_ ? agent_->pins.all() : std::span<const Pin>(); }

  // nullopt: nothing is pinned.
  [[nodiscard]] std::optional<double> next_expiry() const { return agent_ ? agent_->pins.next_expiry() : std::nullopt; }

  void join(Request& request, double time);  // nothing under other policies, as the two below
  void leave(Request& request);
  // Each queue knows the jobs that were added to it, and not those that came by another way.
  void note_entry(const Request& request, QueueName queue, double time);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, agent] = self;
    if (agent) form(*agent);  // the configuration says whether there is one
  }

 private:
  const Context& context_;
  std::optional<Agent> agent_;
};

}  // namespace quire
