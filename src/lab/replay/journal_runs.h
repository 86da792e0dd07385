#pragma once
// What a journal (docs/journal.md) says to a simulation: its requests as a workload, its steps for a model of the worker. It is run again
// for that, since the core alone knows what requests got and what a step computed.
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/simulation.h"

namespace quire {

// By its first bytes; false also where it cannot be read.
[[nodiscard]] bool is_journal(const std::string& path);

// Errors of both: those of replay(); `JOURNAL`, one whose replay differs or that holds no request.
// Tokens are those of the prompts (or others, alike where theirs were alike, where it has none). What was not known when the file begins is
// not in it, nor are forks and what sessions were given later; notes say so, and how the core was set up.
[[nodiscard]] Result<Workload> workload_of_journal(const std::string& path);

// A step that computed something, and how long the worker took for it: from when the one before was over, or from its plan if that was
// later.
struct TimedStep {
  StepSizes sizes;
  double seconds = 0.0;
};
[[nodiscard]] Result<std::vector<TimedStep>> steps_of_journal(const std::string& path);

}  // namespace quire
