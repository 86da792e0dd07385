#include "core/schedule/requests/policy.h"

#include <algorithm>

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {

void Policy::before_step() {
  if (!jobs_.has_agent()) return;
  while (const std::optional<Pin> expired = jobs_.agent().pins.take_expired(context_.now)) unpin(*expired, EventCause::expired);
}

// Returns the request to preempt. Among equal requests, returns the first in `running`.
std::vector<Request*>::iterator Policy::find_victim(std::vector<Request*>& running) const {
  QUIRE_CHECK(!running.empty(), "there is a running request");
  switch (context_.config.scheduler.policy) {
    case SchedulingPolicy::fcfs:
      break;
    case SchedulingPolicy::priority:
      return std::ranges::max_element(running, [](const Request* a, const Request* b) {
        return a->priority != b->priority ? a->priority < b->priority : a->arrival_time < b->arrival_time;
      });
    case SchedulingPolicy::continuum: {
      const auto last =
          std::find_if(running.rbegin(), running.rend(), [](const Request* r) { return r->job == nullptr || !r->job->is_pinned; });
      if (last != running.rend()) return last.base() - 1;
      break;
    }
  }
  return running.end() - 1;
}

std::optional<double> Policy::on_finish(const Request& request) {
  if (request.job == nullptr) return std::nullopt;
  Job& job = *request.job;
  const bool over =
      request.tags.is_last_step || request.status == RequestStatus::finished_aborted || request.status == RequestStatus::finished_error;
  if (over && context_.config.continuum.pins_end_with_job) {
    if (const std::optional<Pin> pin = jobs_.agent().pins.take(job)) unpin(*pin, EventCause::job_over);
    return std::nullopt;
  }
  if (request.tags.is_last_step) return std::nullopt;
  std::string tool = request.tags.tool;
  // A turn without output calls no tool. If the client names the tool, the output is not parsed.
  if (tool.empty() && context_.seams.tools != nullptr && request.num_output_tokens > 0)
    tool = context_.seams.tools->tool_of(Requests::view(request));
  const double stay_s = jobs_.agent().ended(job, tool, context_.now);
  return stay_s > 0.0 ? std::optional(context_.now + stay_s) : std::nullopt;
}

void Policy::pin(Request& request, double expiry) {
  QUIRE_CHECK(request.job != nullptr && request.finished(), "only a finished request of a job is pinned");
  if (const std::optional<Pin> earlier = jobs_.agent().pins.take(*request.job)) unpin(*earlier, EventCause::replaced);
  jobs_.agent().pins.add({request.id, request.job, expiry});
  ended_.keep(request, Holder::pin);
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::pinned, .owner = request.id, .amount = Requests::num_blocks(request)});
}

// Frees the blocks. The pin must already be removed from the list.
void Policy::unpin(const Pin& pin, EventCause cause) {
  Request* request = table_.find(pin.request);
  QUIRE_CHECK(request != nullptr, "a pinned request is known");
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::unpinned, .cause = cause, .owner = request->id, .amount = Requests::num_blocks(*request)});
  ended_.release(*request, Holder::pin);
}

bool Policy::end_oldest_pin() {
  if (!jobs_.has_agent() || !context_.config.continuum.pins_give_way) return false;
  const std::optional<Pin> oldest = jobs_.agent().pins.take_oldest();
  if (oldest) unpin(*oldest, EventCause::lack_of_blocks);
  return oldest.has_value();
}

void Policy::end_pins() {
  while (const std::optional<Pin> oldest = jobs_.has_agent() ? jobs_.agent().pins.take_oldest() : std::nullopt)
    unpin(*oldest, EventCause::ended_by_host);
}

}  // namespace quire
