#pragma once
// Jobs: an agent's turns, one request each, under a name that the client chose. A job is kept while a request names it. The table remembers
// a limited number of other jobs and forgets the one that is unused for the longest time first.
//
// States of a job, and the calls that change them:
//   in use   num_requests > 0                    acquire
//   idle     remembered for its next turn        release; acquire puts it in use again
// When there is no room, the oldest idle job is forgotten.
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

// End of a job's last turn, kept until the next turn arrives.
struct TurnEnd {
  double time = 0.0;  // in s
  std::string tool;   // empty: unknown
};

// Lives in the table's map. Requests and pins may point to it while num_requests > 0.
struct Job {
  // The name is the table's key, a pin restores `is_pinned`, and idle jobs are saved as a list.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [name, num_requests, first_entry, last_turn, is_pinned, idle_hook] = self;
    form(num_requests, first_entry, last_turn);
  }

  const std::string* name = nullptr;
  std::uint32_t num_requests = 0;
  // Times at which a request of the job was first added to `waiting`, and to `skipped_waiting`, in s.
  std::array<double, 2> first_entry = {kNeverEntered, kNeverEntered};
  std::optional<TurnEnd> last_turn;
  bool is_pinned = false;
  ListHook<Job> idle_hook;
};

// More than max_jobs jobs may be in use: each has an open request, and open requests are bounded. The limit applies to remembered jobs.
class JobTable {
 public:
  explicit JobTable(std::size_t max_jobs) : max_jobs_(max_jobs) {}

  // Returns the job of that name, or a new one, and counts one more request. Its address stays.
  Job& acquire(std::string_view name);
  void release(Job& job);

  [[nodiscard]] std::size_t size() const { return jobs_.size(); }
  [[nodiscard]] Job* find(std::string_view name);
  // Stops the program if a job's state and the list of idle jobs disagree.
  void check_invariants() const;
  // Calls visit(const Job&) for each job.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [name, job] : jobs_) visit(job);
  }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [max_jobs, jobs, idle] = self;
    form.named(jobs);
    form.by_name(jobs, idle, [](const Job& job) { return job.num_requests == 0; });
  }

 private:
  const std::size_t max_jobs_;
  std::map<std::string, Job, std::less<>> jobs_;
  IntrusiveList<Job, &Job::idle_hook> idle_;  // unused for the longest time first
};

}  // namespace quire
