#include "core/agent/job_table.h"

#include "base/check.h"

namespace quire {

Job& JobTable::acquire(std::string_view name) {
  auto found = jobs_.find(name);
  if (found == jobs_.end()) {
    if (jobs_.size() >= max_jobs_ && !idle_.empty()) {
      Job& oldest = *idle_.front();
      idle_.remove(oldest);
      QUIRE_CHECK(oldest.num_requests == 0 && !oldest.is_pinned, "only an idle job is forgotten");
      jobs_.erase(jobs_.find(*oldest.name));
    }
    found = jobs_.try_emplace(std::string(name)).first;
    found->second.name = &found->first;
  } else if (found->second.num_requests == 0) {
    idle_.remove(found->second);
  }
  QUIRE_CHECK(!(IntrusiveList<Job, &Job::idle_hook>::linked(found->second)), "a job that is used is not idle");
  ++found->second.num_requests;
  return found->second;
}

void JobTable::release(Job& job) {
  QUIRE_CHECK(job.num_requests > 0, "released by a request of it");
  if (--job.num_requests > 0) return;
  QUIRE_CHECK(!job.is_pinned, "a pin's request names the job");
  if (jobs_.size() > max_jobs_)
    jobs_.erase(jobs_.find(*job.name));
  else
    idle_.push_back(job);
}

void JobTable::check_invariants() const {
  std::size_t num_idle = 0;
  for (const auto& [name, job] : jobs_) {
    QUIRE_CHECK(job.name == &name, "a job is known by its name");
    const bool is_idle = IntrusiveList<Job, &Job::idle_hook>::linked(job);
    QUIRE_CHECK(is_idle == (job.num_requests == 0), "a job that no request names is idle");
    QUIRE_CHECK(!is_idle || !job.is_pinned, "the request of a pin names its job");
    num_idle += is_idle ? 1 : 0;
  }
  QUIRE_CHECK(num_idle == idle_.size(), "idle jobs are of this table");
  QUIRE_CHECK(num_idle == 0 || jobs_.size() <= max_jobs_, "jobs are remembered as far as there is room");
}

Job* JobTable::find(std::string_view name) {
  const auto found = jobs_.find(name);
  return found != jobs_.end() ? &found->second : nullptr;
}

}  // namespace quire
