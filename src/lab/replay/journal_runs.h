#pragma once
// Reads a journal (docs/journal.md) for a simulation: its requests as a workload, its steps for a worker model. The journal is replayed,
// because only the core knows which tokens requests received and what a step computed.
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/simulation.h"

namespace quire {

// Returns whether the file begins like a journal; false if it cannot be read.
[[nodiscard]] bool is_journal(const std::string& path);

// Errors of both functions: the errors of replay(), and `JOURNAL` if the replay differs or the journal holds no request.
// Returns the requests with their prompt tokens. If the journal has no tokens, placeholder tokens have the same common prefixes. Requests
// from before the beginning of the file, forks, and later inputs of sessions are not included. Notes report this and the core's
// configuration.
[[nodiscard]] Result<Workload> workload_of_journal(const std::string& path);

// A step that computed something, and the worker's time for it: from the end of the previous step, or from its plan if that was later.
struct TimedStep {
  StepSizes sizes;
  double seconds = 0.0;
};
[[nodiscard]] Result<std::vector<TimedStep>> steps_of_journal(const std::string& path);

}  // namespace quire
