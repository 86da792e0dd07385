// Parses the formats with one session (the turns of an agent) per line. read_workload.cpp calls it for each line, on the caller's thread.
// The files are not trusted: counts and times are checked against bounds, and each error names the line.
#include <fmt/format.h>

#include <algorithm>

#include "lab/workload/formats.h"

namespace quire {
namespace {

constexpr std::uint32_t kMiniSweTokens = 16;

std::uint32_t next_session(const Workload& workload) {
  return workload.requests.empty() ? 0 : workload.requests.back().session + 1;
}

// The state while the turns of a session are read.
struct Turns {
  Workload& workload;
  std::string& wrong;
  WorkloadRequest pattern;          // fields that all turns share
  std::uint32_t last = kNoRequest;  // the previous turn
  double sub_agents_s = 0.0;        // duration of the sub-agents since the previous turn
};

void take_runs(const JsonLine& line, Workload& workload, WorkloadRequest& request) {
  request.first_run = static_cast<std::uint32_t>(workload.runs.size());
  const boost::json::array* const runs = line.array("hash_runs");
  if (runs == nullptr) return;
  std::uint64_t num_ids = 0;
  for (const boost::json::value& value : *runs) {
    const boost::json::array* const pair = value.is_array() ? &value.get_array() : nullptr;
    const auto first = pair != nullptr && pair->size() == 2 ? whole_number((*pair)[0]) : std::nullopt;
    const auto count = pair != nullptr && pair->size() == 2 ? whole_number((*pair)[1]) : std::nullopt;
    if (!first || !count || *count > kMostTokens)
      return line.set_error("hash_runs", "has an entry that is not a pair of a first id and a count");
    num_ids += *count;
    workload.runs.push_back({*first, static_cast<std::uint32_t>(*count)});
    ++request.num_runs;
  }
  if (num_ids > request.prompt_tokens / workload.id_tokens + 1)
    line.set_error("hash_runs", fmt::format("has {} ids for {} tokens", num_ids, request.prompt_tokens));
}

void take_turn(const JsonLine& line, Turns& turns) {
  WorkloadRequest request = turns.pattern;
  request.prompt_tokens = static_cast<std::uint32_t>(line.count("in", 1, kMostTokens));
  // A turn that was aborted before its first token has still computed its prompt.
  request.output_tokens = std::max(1U, static_cast<std::uint32_t>(line.count("out", 0, kMostTokens)));
  request.after = turns.last;
  // The parent's think time includes the duration of its sub-agents. In the workload, this turn waits for the sub-agents, so their duration
  // is subtracted.
  if (turns.last != kNoRequest) request.start_s = std::max(0.0, line.number_or("think_time", 0.0, 0.0) - turns.sub_agents_s);
  turns.sub_agents_s = 0.0;
  take_runs(line, turns.workload, request);
  turns.last = static_cast<std::uint32_t>(turns.workload.requests.size());
  turns.workload.requests.push_back(request);
}

void take_turns(const JsonLine& line, Turns& turns, bool are_sub_agents) {
  const boost::json::array* const requests = line.array("requests");
  if (requests == nullptr) return;
  for (const boost::json::value& value : *requests) {
    if (!value.is_object()) return line.set_error("requests", "has an entry that is not an object");
    const JsonLine turn(value.get_object(), turns.wrong);
    if (turn.text("type") != "subagent") {
      take_turn(turn, turns);
    } else if (are_sub_agents) {
      return line.set_error("requests", "has a sub-agent within a sub-agent");
    } else {
      take_turns(turn, turns, true);
      turns.sub_agents_s += turn.number_or("duration_ms", 0.0, 0.0) / 1e3;
    }
  }
}

}  // namespace

void take_session(const JsonLine& line, Workload& workload, std::string& wrong) {
  const auto id_tokens = static_cast<std::uint32_t>(line.count("block_size", 1, 1U << 20U));
  if (workload.id_tokens != 0 && workload.id_tokens != id_tokens) return line.set_error("block_size", "differs from earlier lines");
  workload.id_tokens = id_tokens;
  Turns turns{.workload = workload, .wrong = wrong, .pattern = {.session = next_session(workload)}};
  const std::uint64_t common = line.has("tool_tokens") ? line.count("tool_tokens", 0, kMostTokens) : 0;
  const std::uint64_t system = line.has("system_tokens") ? line.count("system_tokens", 0, kMostTokens) : 0;
  const bool is_global = line.text("hash_id_scope") == "global";
  turns.pattern.shared_ids = is_global ? static_cast<std::uint32_t>((common + system) / id_tokens) : 0;
  turns.pattern.name_space = is_global ? 0 : turns.pattern.session + 1;
  take_turns(line, turns, false);
  if (turns.last != kNoRequest) workload.requests[turns.last].ends_session = true;
}

// Adds the turns of a mini-SWE session. Prompts grow only at their end, so consecutive ids of the session state which part two turns share.
void take_mini_swe(const JsonLine& line, Workload& workload, std::string& wrong) {
  workload.id_tokens = kMiniSweTokens;
  const std::uint32_t session = next_session(workload);
  const boost::json::array* const requests = line.array("requests");
  if (requests == nullptr) return;
  for (const boost::json::value& value : *requests) {
    if (!value.is_object()) return line.set_error("requests", "has an entry that is not an object");
    const JsonLine turn(value.get_object(), wrong);
    WorkloadRequest& request = workload.requests.emplace_back();
    request.session = session;
    request.start_s = turn.number("t", 0.0);
    request.prompt_tokens = static_cast<std::uint32_t>(turn.count("prompt", 1, kMostTokens));
    request.output_tokens = std::max(1U, static_cast<std::uint32_t>(turn.count("out", 0, kMostTokens)));
    request.ends_session = &value == &requests->back();
    request.first_run = static_cast<std::uint32_t>(workload.runs.size());
    request.num_runs = 1;
    workload.runs.push_back({std::uint64_t{session} << 32U, request.prompt_tokens / kMiniSweTokens});
  }
}

}  // namespace quire
