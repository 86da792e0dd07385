#pragma once
// A recorded run for `quire trace`: PATH.steps.jsonl, read line by line.
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// The state of a request in a step. loading: a tier loads the blocks for which the request waits.
enum class LaneState : std::uint8_t { absent, waiting, loading, running, computed, preempted, pinned };

struct TraceRow {
  std::uint64_t step = 0;
  double time_s = 0.0;  // seconds since the first row
  std::uint64_t num_running = 0, num_waiting = 0, num_pinned = 0;
  std::uint64_t free_blocks = 0, total_blocks = 0, pinned_blocks = 0;
  std::uint64_t num_new = 0, num_resumed = 0, num_preempted = 0, num_tokens = 0, hit_tokens = 0;
};

struct TraceLane {
  std::string request, job;
  std::vector<LaneState> states;      // one per row, from `first` on
  std::vector<std::uint32_t> tokens;  // one per row: tokens computed in that step
  std::size_t first = 0;
};

struct TraceRun {
  std::string policy;
  std::vector<TraceRow> rows;
  std::vector<TraceLane> lanes;  // in the order of their first row
  std::uint64_t num_bad_lines = 0;

  // Reads at most max_rows steps, from `first_step` on. Missing fields count as 0. Error: the trace has no such step.
  static Result<TraceRun> read(std::istream& in, std::uint64_t first_step, std::size_t max_rows);
};

[[nodiscard]] std::string trace_table(const TraceRun& run);
// Returns the run in Chrome's trace event format, which Perfetto and chrome://tracing can open: one lane with the states of each request,
// and counters.
[[nodiscard]] std::string trace_perfetto(const TraceRun& run);

}  // namespace quire
