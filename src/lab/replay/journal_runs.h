#pragma once
// Reads a journal (docs/journal.md) for a simulation: the requests as a workload, and the steps for a worker model. The journal is
// replayed, because only the core knows which tokens the requests received and what each step computed.
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/simulation.h"

namespace quire {

// Returns whether the file begins like a journal; false if the file cannot be read.
[[nodiscard]] bool is_journal(const std::string& path);

// Errors of both functions: the errors of replay(), and `JOURNAL` if a decision of the replay differs or the journal contains no request.
// Returns the requests with their prompt tokens. If the journal has no tokens, the result has placeholder tokens with the same common
// prefixes. Requests from before the beginning of the file, forks, and later inputs of sessions are left out. Workload::notes report what
// was left out, and the core's configuration.
[[nodiscard]] Result<Workload> workload_of_journal(const std::string& path);

// A step that computed something, and its duration in the worker: from the end of the previous step or, if later, from its plan.
struct TimedStep {
  StepSizes sizes;
  double seconds = 0.0;
};
[[nodiscard]] Result<std::vector<TimedStep>> steps_of_journal(const std::string& path);

}  // namespace quire
