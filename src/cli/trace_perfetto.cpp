// Writes a traced run in Chrome's trace event format (document "Trace Event Format"): complete events ("X") for the states of requests, and
// counters ("C") for all other values. Consecutive steps in the same state become one event. Called by `quire trace` on the main thread,
// with rows from trace_run.cpp. Request names come from clients and are therefore escaped.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "cli/trace_run.h"

namespace quire {
namespace {

constexpr double kUsPerS = 1e6;

// A state that a request has in consecutive steps, and the number of tokens computed in these steps.
struct Slice {
  std::string_view name;
  std::size_t first = 0, last = 0;  // rows
  std::uint64_t num_tokens = 0;
};

class Events {
 public:
  explicit Events(const TraceRun& run) : run_(run) {}

  std::string write() {
    json_.begin_object().field("displayTimeUnit", "ms").begin_array("traceEvents");
    name("process_name", 1, 0, "requests");
    name("process_name", 2, 0, fmt::format("scheduler ({})", run_.policy));
    for (std::size_t i = 0; i < run_.lanes.size(); ++i) lane(i);
    for (std::size_t row = 0; row < run_.rows.size(); ++row) counters(row);
    json_.end_array().end_object();
    return out_ + "\n";
  }

 private:
  [[nodiscard]] double us(std::size_t row) const { return run_.rows[row].time_s * kUsPerS; }
  // Returns the end of a step, which is the start of the next step. The last step is drawn as long as the step before it.
  [[nodiscard]] double end_us(std::size_t row) const {
    if (row + 1 < run_.rows.size()) return us(row + 1);
    return us(row) + (row > 0 ? us(row) - us(row - 1) : 0.0);
  }

  void name(const char* what, int process, std::size_t thread, std::string_view text) {
    json_.begin_object().field("ph", "M").field("name", what).field("pid", process).field("tid", thread);
    json_.begin_object("args").field("name", text).end_object().end_object();
  }

  // Returns the name of the state. The request is in prefill until its first step with one token, and in decode from then on, with or
  // without draft tokens.
  static std::string_view name_of(LaneState state, std::uint32_t num_tokens, bool& answers) {
    switch (state) {
      case LaneState::waiting:
        return "waiting";
      case LaneState::loading:
        return "waiting for a tier";
      case LaneState::running:
        return "held back";
      case LaneState::preempted:
        answers = false;
        return "preempted";
      case LaneState::pinned:
        return "pinned";
      case LaneState::computed:
        answers |= num_tokens == 1;
        return answers ? "decode" : "prefill";
      case LaneState::absent:
        break;
    }
    return {};
  }

  void lane(std::size_t index) {
    const TraceLane& lane = run_.lanes[index];
    name("thread_name", 1, index, lane.job.empty() ? lane.request : lane.request + " (" + lane.job + ")");
    Slice slice;
    bool answers = false;
    for (std::size_t i = 0; i < lane.states.size(); ++i) {
      const std::uint32_t num_tokens = i < lane.tokens.size() ? lane.tokens[i] : 0;
      const std::string_view name = name_of(lane.states[i], num_tokens, answers);
      if (name != slice.name) {
        put(index, slice);
        slice = {.name = name, .first = lane.first + i};
      }
      slice.last = lane.first + i;
      slice.num_tokens += num_tokens;
    }
    put(index, slice);
  }

  void put(std::size_t lane, const Slice& slice) {
    if (slice.name.empty()) return;
    json_.begin_object().field("ph", "X").field("name", slice.name).field("pid", 1).field("tid", lane);
    json_.fixed_field("ts", us(slice.first), 1).fixed_field("dur", end_us(slice.last) - us(slice.first), 1);
    json_.begin_object("args").field("tokens", slice.num_tokens).field("first_step", run_.rows[slice.first].step);
    json_.field("last_step", run_.rows[slice.last].step).end_object().end_object();
  }

  void counters(std::size_t row) {
    const TraceRow& r = run_.rows[row];
    begin_counter("requests", row).field("running", r.num_running).field("waiting", r.num_waiting).field("pinned", r.num_pinned);
    end_counter();
    begin_counter("blocks", row).field("used", r.total_blocks - std::min(r.total_blocks, r.free_blocks)).field("free", r.free_blocks);
    end_counter();
    begin_counter("tokens per step", row).field("tokens", r.num_tokens);
    end_counter();
  }

  JsonWriter& begin_counter(const char* name, std::size_t row) {
    json_.begin_object().field("ph", "C").field("name", name).field("pid", 2).fixed_field("ts", us(row), 1);
    return json_.begin_object("args");
  }
  void end_counter() { json_.end_object().end_object(); }

  const TraceRun& run_;
  std::string out_;
  JsonWriter json_{out_};
};

}  // namespace

std::string trace_perfetto(const TraceRun& run) {
  return Events(run).write();
}

}  // namespace quire
