#pragma once
// Jobs: an agent's turns, one request each, under a name of the client's. A job is kept while a request names it; of the others the table
// remembers so many, and forgets the one unused longest first.
//
// States of a job, and who moves it:
//   in use   num_requests > 0                    acquire
//   idle     remembered for its next turn        release; acquire takes it up again
// and it is forgotten when it is the oldest idle one and there is no room.
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

// The end of a job's last turn, until the next one arrives.
struct TurnEnd {
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [time, tool] = self;
    form(time, tool);
  }

  double time = 0.0;  // s
  std::string tool;   // empty: none is known
};

// Lives in the table's map, at an address that requests and pins keep while num_requests > 0.
struct Job {
  // The name is the table's key, a pin says whether it is pinned, and the idle ones are in a list.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [name, num_requests, first_entry, last_turn, is_pinned, idle_hook] = self;
    form(num_requests, first_entry, last_turn);
  }

  const std::string* name = nullptr;
  std::uint32_t num_requests = 0;
  // When a request of it was first added to `waiting`, and to `skipped_waiting`, s.
  std::array<double, 2> first_entry = {kNeverEntered, kNeverEntered};
  std::optional<TurnEnd> last_turn;
  bool is_pinned = false;
  ListHook<Job> idle_hook;
};

// Jobs in use may be more than max_jobs: each has a request that is open, and those are bounded. What is bounded here is what is
// remembered.
class JobTable {
 public:
  explicit JobTable(std::size_t max_jobs) : max_jobs_(max_jobs) {}

  // The job of that name, for one request more. Its address stays.
  Job& acquire(std::string_view name);
  void release(Job& job);

  [[nodiscard]] std::size_t size() const { return jobs_.size(); }
  [[nodiscard]] Job* find(std::string_view name);
  // Stops the program if a job is not in the state that its list says.
  void check_invariants() const;
  // Calls visit(const Job&) for each.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [name, job] : jobs_) visit(job);
  }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [max_jobs, jobs, idle] = self;
    form.named(jobs);
    form.by_name(jobs, idle, [](const Job& job) { return job.num_requests == 0; });
  }

 private:
  const std::size_t max_jobs_;
  std::map<std::string, Job, std::less<>> jobs_;
  IntrusiveList<Job, &Job::idle_hook> idle_;  // the one unused longest first
};

}  // namespace quire
