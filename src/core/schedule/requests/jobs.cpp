#include "core/schedule/requests/jobs.h"

#include <fmt/format.h>

#include "base/check.h"

namespace quire {
namespace {

// Returns a name that differs between tenants even if their job names are equal.
std::string job_name(const RequestTags& tags) {
  return fmt::format("{}:{}{}", tags.tenant.size(), tags.tenant, tags.job);
}

}  // namespace

void Jobs::join(Request& request, double time) {
  if (!agent_) return;
  QUIRE_CHECK(request.job == nullptr, "a request joins its job once");
  request.entry_time = context_.config.continuum.jobless_in_order ? time : kNeverEntered;
  if (request.tags.job.empty()) return;
  request.job = &agent_->jobs.acquire(job_name(request.tags));
  agent_->arrived(*request.job, time);
}

void Jobs::leave(Request& request) {
  if (request.job == nullptr) return;
  QUIRE_CHECK(request.finished(), "only a finished request leaves its job");
  agent().jobs.release(*request.job);
  request.job = nullptr;
}

void Jobs::note_entry(const Request& request, QueueName queue, double time) {
  if (request.job == nullptr) return;
  for (const QueueName one : {QueueName::waiting, QueueName::skipped}) {
    double& entry = request.job->first_entry[one == QueueName::waiting ? 0 : 1];
    if (entry == kNeverEntered && (one == queue || context_.config.continuum.jobless_in_order)) entry = time;
  }
}

}  // namespace quire
