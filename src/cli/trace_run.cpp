// Reads the files of a scheduler trace (docs/trace.md) into rows and lanes. Used by `quire trace` on the main thread. Lines that are not
// JSON are counted and skipped; the last line may be incomplete if the server was killed.
#include "cli/trace_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <limits>
#include <unordered_map>

namespace quire {
namespace {

namespace json = boost::json;

class Reader {
 public:
  Reader(std::uint64_t first_step, std::size_t max_rows) : first_step_(first_step), max_rows_(max_rows) {}

  // Adds one line. Returns false when no more lines are needed.
  bool take(const std::string& line) {
    boost::system::error_code wrong;
    const json::value value = json::parse(line, wrong);
    if (wrong || !value.is_object()) {
      ++run_.num_bad_lines;
      return true;
    }
    const json::object& record = value.get_object();
    if (number(record, "step") < first_step_) return true;
    const std::string_view event = text(record, "event");
    if (event == "step_snapshot") return begin(record);
    if (run_.rows.empty() || number(record, "step") != run_.rows.back().step) return true;
    if (event == "step_decision") decide(record);
    if (event == "quire") note(record);
    if (event == "prefix_cache_lookup") run_.rows.back().hit_tokens += number(record, "total_hit_tokens");
    return true;
  }

  TraceRun finish() { return std::move(run_); }

 private:
  static std::uint64_t number(const json::object& record, std::string_view name) {
    const json::value* value = record.if_contains(name);
    const std::int64_t found = value != nullptr && value->is_int64() ? value->get_int64() : 0;
    return found > 0 ? static_cast<std::uint64_t>(found) : 0;
  }
  static std::string_view text(const json::object& record, std::string_view name) {
    const json::value* value = record.if_contains(name);
    return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
  }
  static const json::array& list(const json::object& record, std::string_view name) {
    static const json::array kNone;
    const json::value* value = record.if_contains(name);
    return value != nullptr && value->is_array() ? value->get_array() : kNone;
  }

  bool begin(const json::object& record) {
    if (run_.rows.size() == max_rows_) return false;
    const json::value* ts = record.if_contains("ts");
    const double time_s = ts != nullptr && ts->is_number() ? ts->to_number<double>() : 0.0;
    if (run_.rows.empty()) start_s_ = time_s;
    run_.policy = text(record, "policy");
    run_.rows.push_back({.step = number(record, "step"),
                         .time_s = time_s - start_s_,
                         .num_running = number(record, "num_running"),
                         .num_waiting = number(record, "num_waiting"),
                         .num_pinned = number(record, "num_pinned"),
                         .free_blocks = number(record, "free_blocks"),
                         .total_blocks = number(record, "total_blocks"),
                         .pinned_blocks = number(record, "pinned_blocks")});
    mark(list(record, "running_req_ids"), &list(record, "running_job_ids"), LaneState::running);
    mark(list(record, "waiting_req_ids"), &list(record, "waiting_job_ids"), LaneState::waiting);
    if (const json::value* ours = record.if_contains("quire"); ours != nullptr && ours->is_object()) {
      mark(list(ours->get_object(), "skipped_waiting_req_ids"), nullptr, LaneState::waiting);
      mark(list(ours->get_object(), "pinned_req_ids"), nullptr, LaneState::pinned);
    }
    return true;
  }

  void decide(const json::object& record) {
    TraceRow& row = run_.rows.back();
    const json::value* const tokens = record.if_contains("num_scheduled_tokens");
    row.num_new = list(record, "scheduled_new_req_ids").size();
    row.num_resumed = list(record, "scheduled_resumed_req_ids").size();
    row.num_preempted = list(record, "preempted_req_ids").size();
    if (tokens != nullptr && tokens->is_object())
      for (const auto& [request, count] : tokens->get_object())
        row.num_tokens += count.is_int64() ? static_cast<std::uint64_t>(count.get_int64()) : 0;
    for (const char* name : {"scheduled_new_req_ids", "scheduled_resumed_req_ids", "scheduled_running_req_ids"})
      mark(list(record, name), nullptr, LaneState::computed);
    mark(list(record, "preempted_req_ids"), nullptr, LaneState::preempted);
    if (tokens != nullptr && tokens->is_object()) note_tokens(tokens->get_object());
  }

  void note_tokens(const json::object& tokens) {
    for (const auto& [request, count] : tokens) {
      const auto found = lane_of_.find(std::string(request));
      if (found == lane_of_.end() || !count.is_int64() || count.get_int64() <= 0) continue;
      TraceLane& lane = run_.lanes[found->second];
      lane.tokens.resize(lane.states.size());
      lane.tokens.back() = static_cast<std::uint32_t>(std::min<std::int64_t>(count.get_int64(), std::numeric_limits<std::uint32_t>::max()));
    }
  }

  // Marks a waiting request as loading if the record says that it waits for a tier.
  void note(const json::object& record) {
    if (text(record, "what") != "passed_over" || text(record, "cause") != "loading") return;
    const auto found = lane_of_.find(std::string(text(record, "owner")));
    if (found != lane_of_.end() && run_.lanes[found->second].first + run_.lanes[found->second].states.size() == run_.rows.size())
      run_.lanes[found->second].states.back() = LaneState::loading;
  }

  void mark(const json::array& requests, const json::array* jobs, LaneState state) {
    const std::size_t row = run_.rows.size() - 1;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i].is_string()) continue;
      const auto [place, fresh] = lane_of_.try_emplace(std::string(requests[i].get_string()), run_.lanes.size());
      if (fresh) run_.lanes.push_back({.request = place->first, .job = {}, .states = {}, .tokens = {}, .first = row});
      TraceLane& lane = run_.lanes[place->second];
      lane.states.resize(row - lane.first + 1, LaneState::absent);
      lane.states.back() = state;
      if (jobs != nullptr && i < jobs->size() && (*jobs)[i].is_string()) lane.job = (*jobs)[i].get_string();
    }
  }

  const std::uint64_t first_step_;
  const std::size_t max_rows_;
  TraceRun run_;
  double start_s_ = 0.0;
  std::unordered_map<std::string, std::size_t> lane_of_;
};

}  // namespace

Result<TraceRun> TraceRun::read(std::istream& in, std::uint64_t first_step, std::size_t max_rows) {
  Reader reader(first_step, max_rows);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && !reader.take(line)) break;
  TraceRun run = reader.finish();
  if (run.rows.empty())
    return fail(ErrorCode::invalid_argument, "PATH", "contains no steps of a trace", "use the PATH of quire serve --trace");
  return run;
}

std::string trace_table(const TraceRun& run) {
  std::string out = fmt::format("policy {}\n{:>8} {:>9} {:>7} {:>7} {:>6} {:>7} {:>4} {:>7} {:>9} {:>7} {:>7} {:>7}\n", run.policy, "step",
                                "s", "running", "waiting", "pinned", "tokens", "new", "resumed", "preempted", "hit", "free", "pinned");
  for (const TraceRow& row : run.rows) {
    out += fmt::format("{:>8} {:>9.3f} {:>7} {:>7} {:>6} {:>7} {:>4} {:>7} {:>9} {:>7} {:>7} {:>7}\n", row.step, row.time_s,
                       row.num_running, row.num_waiting, row.num_pinned, row.num_tokens, row.num_new, row.num_resumed, row.num_preempted,
                       row.hit_tokens, row.free_blocks, row.pinned_blocks);
  }
  out += "running, waiting, pinned, free and pinned blocks: at the start of the step; hit: prompt tokens found in a cache\n";
  if (run.num_bad_lines > 0) out += fmt::format("{} lines are not valid JSON\n", run.num_bad_lines);
  return out;
}

}  // namespace quire
