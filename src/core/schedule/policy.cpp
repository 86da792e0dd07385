// Where the policies differ beside the order of the queues (request_queue.h): what happens before a step, who gives way, and whether the
// blocks of a finished request stay.
//
//                 before a step         who gives way                                    blocks of a finished turn
//   fcfs          -                     the request admitted last                        are freed
//   priority      -                     the largest (priority, arrival time)             are freed
//   continuum     expired pins end      the last one whose job is not pinned, or the last  stay for a while: running -> finished, pinned
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

void Core::State::before_step() {
  while (const std::optional<Pin> expired = the_agent().pins.take_expired(now)) unpin(*expired, EventCause::expired);
}

// Of equal ones the first in `running`.
std::vector<Request*>::iterator Core::State::find_victim() {
  QUIRE_CHECK(!running.empty(), "who asks for room runs");
  switch (config.scheduler.policy) {
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

void Core::State::join_job(Request& request, double time) {
  request.entered = config.continuum.jobless_in_order ? time : kNeverEntered;
  if (request.tags.job.empty()) return;
  request.job = &the_agent().jobs.acquire(request.tags.job);
  the_agent().arrived(*request.job, time);
}

void Core::State::leave_job(Request& request) {
  if (request.job == nullptr) return;
  the_agent().jobs.release(*request.job);
  request.job = nullptr;
}

// Each queue knows the jobs that were added to it, and not those that came by another way.
void Core::State::note_entry(Request& request, QueueName queue, double time) {
  if (request.job == nullptr) return;
  for (const QueueName one : {QueueName::waiting, QueueName::skipped}) {
    double& entry = request.job->first_entry[one == QueueName::waiting ? 0 : 1];
    if (entry == kNeverEntered && (one == queue || config.continuum.jobless_in_order)) entry = time;
  }
}

// Until when the blocks of a request that ends now stay; nullopt: they are free.
std::optional<double> Core::State::on_finish(const Request& request) {
  if (request.job == nullptr) return std::nullopt;
  Job& job = *request.job;
  const bool over =
      request.tags.is_last_step || request.status == RequestStatus::finished_aborted || request.status == RequestStatus::finished_error;
  if (over && config.continuum.pins_end_with_job) {
    if (const std::optional<Pin> pin = the_agent().pins.take(job)) unpin(*pin, EventCause::job_over);
    return std::nullopt;
  }
  if (request.tags.is_last_step) return std::nullopt;
  std::string tool = request.tags.tool;
  if (tool.empty() && seams.tools != nullptr && request.num_output_tokens > 0) tool = seams.tools->tool_of(view(request));
  const double stay_s = the_agent().ended(job, tool, now);
  return stay_s > 0.0 ? std::optional(now + stay_s) : std::nullopt;
}

// Instead of the job's earlier pin.
void Core::State::pin(Request& request, double expiry) {
  if (const std::optional<Pin> earlier = the_agent().pins.take(*request.job)) unpin(*earlier, EventCause::replaced);
  the_agent().pins.add({request.id, request.job, expiry});
  hold_ledger.take(request, Holder::pin);
  if (events.wanted()) events.on_event({.what = EventKind::pinned, .owner = request.id, .amount = num_blocks(request)});
}

// It is out of the list.
void Core::State::unpin(const Pin& pin, EventCause cause) {
  Request* request = table.find(pin.request);
  QUIRE_CHECK(request != nullptr, "a pinned request is known");
  if (events.wanted()) events.on_event({.what = EventKind::unpinned, .cause = cause, .owner = request->id, .amount = num_blocks(*request)});
  let_go(*request, Holder::pin);
}

bool Core::State::end_oldest_pin() {
  if (!agent || !config.continuum.pins_give_way) return false;
  const std::optional<Pin> oldest = agent->pins.take_oldest();
  if (oldest) unpin(*oldest, EventCause::lack_of_blocks);
  return oldest.has_value();
}

void Core::State::end_pins() {
  while (const std::optional<Pin> oldest = agent ? agent->pins.take_oldest() : std::nullopt) unpin(*oldest, EventCause::ended_by_host);
}

void Core::end_pins() {
  state_->end_pins();
  state_->destroy_gone();
}

std::optional<double> Core::next_deadline() const {
  const State& s = *state_;
  if (!s.agent) return std::nullopt;
  if (!s.out.retiring.empty() || !s.out.gone.empty()) return -std::numeric_limits<double>::infinity();
  return s.agent->pins.next_expiry();
}

}  // namespace quire
