#include "core/agent/job_table.h"

#include "base/check.h"

namespace quire {

Job& JobTable::acquire(std::string_view name) {
  auto found = jobs_.find(name);
  if (found == jobs_.end()) {
    if (jobs_.size() >= max_jobs_ && !idle_.empty()) {
      Job& oldest = *idle_.front();
      idle_.remove(oldest);
      QUIRE_CHECK(oldest.num_requests == 0 && !oldest.is_pinned, "only an idle job without a pin is dropped");
      jobs_.erase(jobs_.find(*oldest.name));
    }
    found = jobs_.try_emplace(std::string(name)).first;
    found->second.name = &found->first;
  } else if (found->second.num_requests == 0) {
    idle_.remove(found->second);
  }
  QUIRE_CHECK(!(IntrusiveList<Job, &Job::idle_hook>::linked(found->second)), "a job in use is not in the idle list");
  ++found->second.num_requests;
  return found->second;
}

void JobTable::release(Job& job) {
  QUIRE_CHECK(job.num_requests > 0, "a job is released by one of its requests");
  if (--job.num_requests > 0) return;
  QUIRE_CHECK(!job.is_pinned, "a job without requests has no pin");
  if (jobs_.size() > max_jobs_)
    jobs_.erase(jobs_.find(*job.name));
  else
    idle_.push_back(job);
}

void JobTable::check_invariants() const {
  std::size_t num_idle = 0;
  for (const auto& [name, job] : jobs_) {
    QUIRE_CHECK(job.name == &name, "a job points to its name in the table");
    const bool is_idle = IntrusiveList<Job, &Job::idle_hook>::linked(job);
    QUIRE_CHECK(is_idle == (job.num_requests == 0), "a job is in the idle list if and only if it has no requests");
    QUIRE_CHECK(!is_idle || !job.is_pinned, "an idle job has no pin");
    num_idle += is_idle ? 1 : 0;
  }
  QUIRE_CHECK(num_idle == idle_.size(), "the idle list contains only jobs of this table");
  QUIRE_CHECK(num_idle == 0 || jobs_.size() <= max_jobs_, "the table holds at most max_jobs jobs while a job is idle");
}

Job* JobTable::find(std::string_view name) {
  const auto found = jobs_.find(name);
  return found != jobs_.end() ? &found->second : nullptr;
}

}  // namespace quire
