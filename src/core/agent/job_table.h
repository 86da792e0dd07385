#pragma once
// Jobs: the turns of an agent, one request each, under a name that the client chose. A job is kept while it has requests. The table also
// remembers a limited number of other jobs; the one that has been unused for the longest time is forgotten first.
//
// States of a job, and the calls that change them:
//   in use   num_requests > 0                    acquire
//   idle     remembered for its next turn        release; acquire makes it in use again
// If the table is full, the oldest idle job is forgotten.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/intrusive_list.h"

namespace quire {

inline constexpr double kNeverEntered = std::numeric_limits<double>::infinity();

// The end of a job's last turn, kept until the next turn arrives.
struct TurnEnd {
  double time = 0.0;  // in s
  std::string tool;   // empty if unknown
};

// Stored in the table's map. Requests and pins may point to it while num_requests > 0.
struct Job {
  // Checkpoint fields. The name is saved as the table's key, `is_pinned` is restored from the pins, and idle jobs are saved as a list.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [name, num_requests, first_entry, last_turn, is_pinned, idle_hook] = self;
    form(num_requests, first_entry, last_turn);
  }

  const std::string* name = nullptr;
  std::uint32_t num_requests = 0;
  // Times in seconds at which a request of the job was first added to `waiting` and to `skipped_waiting`.
  std::array<double, 2> first_entry = {kNeverEntered, kNeverEntered};
  std::optional<TurnEnd> last_turn;
  bool is_pinned = false;
  ListHook<Job> idle_hook;
};

// More than max_jobs jobs may be in use: each has an open request, and the number of open requests is limited. max_jobs limits how many
// jobs are remembered.
class JobTable {
 public:
  explicit JobTable(std::size_t max_jobs) : max_jobs_(max_jobs) {}

  // Returns the job with this name, creating it if needed, and counts one more request. The address of the job does not change.
  Job& acquire(std::string_view name);
  void release(Job& job);

  [[nodiscard]] std::size_t size() const { return jobs_.size(); }
  [[nodiscard]] Job* find(std::string_view name);
  // Stops the program if the state of a job and the list of idle jobs are inconsistent.
  void check_invariants() const;
  // Calls visit(const Job&) for each job.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [name, job] : jobs_) visit(job);
  }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [max_jobs, jobs, idle] = self;
    form.named(jobs);
    form.by_name(jobs, idle, [](const Job& job) { return job.num_requests == 0; });
  }

 private:
  const std::size_t max_jobs_;
  std::map<std::string, Job, std::less<>> jobs_;
  IntrusiveList<Job, &Job::idle_hook> idle_;  // the job that has been idle for the longest time comes first
};

}  // namespace quire
