// Reads a file as a workload. The first line determines the format of all lines. Afterwards the options are applied to the whole workload.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/random.h"
#include "lab/replay/journal_runs.h"
#include "lab/workload/formats.h"
#include "lab/workload/line_reader.h"

namespace quire {
namespace {

constexpr std::uint32_t kMostRequests = 50'000'000;

bool has_sessions(WorkloadFormat format) {
  return format == WorkloadFormat::sessions;
}

class FileReader {
 public:
  FileReader(LineReader& lines, Workload& workload) : lines_(lines), workload_(workload) {}

  Result<WorkloadFormat> read(std::uint32_t max_requests) {
    WorkloadFormat format = WorkloadFormat::unknown;
    for (bool first = true; workload_.requests.size() < max_requests; first = false) {
      const auto more = lines_.next();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      if (first) format = format_of(lines_.line());
      if (format == WorkloadFormat::unknown)
        return std::unexpected(lines_.error("has an unknown format", "use a format that docs/simulate.md lists"));
      if (first && format == WorkloadFormat::azure) continue;
      if (const std::string wrong = take(format); !wrong.empty()) return std::unexpected(lines_.error(wrong, "fix or remove the line"));
    }
    return format;
  }

 private:
  // Adds the requests of the current line. Returns what is wrong with the line; empty: nothing.
  std::string take(WorkloadFormat format) {
    if (format == WorkloadFormat::azure) return take_azure(lines_.line(), workload_);
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(lines_.line(), error, memory_.release(), {.max_depth = 16});
    if (error || !value.is_object()) return "is not a JSON object (the file may be truncated)";
    std::string wrong;
    const JsonLine line(value.get_object(), wrong);
    switch (format) {
      case WorkloadFormat::mooncake:
        take_mooncake(line, workload_);
        break;
      case WorkloadFormat::tokens:
        take_tokens(line, workload_);
        break;
      case WorkloadFormat::vllm_run:
        take_vllm_run(line, workload_);
        break;
      case WorkloadFormat::sessions:
        take_session(line, workload_, wrong);
        break;
      case WorkloadFormat::mini_swe:
        take_mini_swe(line, workload_, wrong);
        break;
      case WorkloadFormat::azure:
      case WorkloadFormat::unknown:
        break;
    }
    return wrong;
  }

  // The JSON memory of one line, which is freed before the next line is parsed.
  struct LineMemory {
    boost::json::storage_ptr release() {
      storage = {};
      return storage = boost::json::make_shared_resource<boost::json::monotonic_resource>();
    }
    boost::json::storage_ptr storage;
  };

  LineReader& lines_;
  Workload& workload_;
  LineMemory memory_;
};

// Sorts the requests by arrival, and makes times relative to the first arrival. Does nothing for workloads of sessions.
void order(Workload& workload, bool is_closed_loop) {
  auto& requests = workload.requests;
  if (is_closed_loop || requests.empty()) return;
  if (!std::ranges::is_sorted(requests, {}, &WorkloadRequest::start_s)) {
    std::vector<std::pair<double, std::size_t>> places;
    places.reserve(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) places.emplace_back(requests[i].start_s, i);
    std::ranges::sort(places);
    std::vector<WorkloadRequest> ordered;
    ordered.reserve(requests.size());
    for (const auto& [unused, place] : places) ordered.push_back(requests[place]);
    requests = std::move(ordered);
    workload.notes.push_back("requests were sorted by time");
  }
  const double first_s = requests.front().start_s;
  for (WorkloadRequest& request : requests) request.start_s -= first_s;
}

// Spreads requests with equal times evenly over the interval until the next time.
void spread(std::vector<WorkloadRequest>& requests) {
  for (std::size_t begin = 0, end = 0; begin < requests.size(); begin = end) {
    while (end < requests.size() && requests[end].start_s == requests[begin].start_s) ++end;
    if (end == requests.size()) return;
    const double gap_s = (requests[end].start_s - requests[begin].start_s) / static_cast<double>(end - begin);
    for (std::size_t i = begin + 1; i < end; ++i) requests[i].start_s += gap_s * static_cast<double>(i - begin);
  }
}

// Assigns a session to each agent. The first agent of a session shares all prefixes that the file states. Later agents with the same
// session share only its common beginning, because two agents with the same task produce different texts.
Workload assign_to_agents(Workload read, const WorkloadOptions& options) {
  std::vector<std::uint32_t> begins;  // first requests of the sessions
  for (std::uint32_t i = 0; i < read.requests.size(); ++i)
    if (read.requests[i].after == kNoRequest) begins.push_back(i);
  begins.push_back(static_cast<std::uint32_t>(read.requests.size()));
  const auto num_sessions = static_cast<std::uint32_t>(begins.size() - 1);
  const std::uint32_t num_agents = options.num_agents != 0 ? options.num_agents : num_sessions;
  Random random(options.seed);
  std::vector<WorkloadRequest> requests = std::move(read.requests);
  read.requests.clear();
  std::vector<bool> played(num_sessions, false);
  for (std::uint32_t agent = 0; agent < num_agents; ++agent) {
    const auto session = agent < num_sessions ? agent : static_cast<std::uint32_t>(random.below(num_sessions));
    const auto offset = static_cast<std::uint32_t>(read.requests.size()) - begins[session];
    const double start_s = random.unit() * options.ramp_s;
    for (std::uint32_t i = begins[session]; i < begins[session + 1]; ++i) {
      WorkloadRequest request = requests[i];
      request.session = agent;
      if (request.after == kNoRequest)
        request.start_s = start_s;
      else
        request.after += offset;
      if (options.max_think_s > 0.0) request.start_s = std::min(request.start_s, options.max_think_s);
      if (played[session]) request.name_space = num_sessions + 1 + agent;
      read.requests.push_back(request);
    }
    played[session] = true;
  }
  read.notes.push_back(fmt::format("{} agents, {} sessions in the file, uniform random starts within {} s (seed {})", num_agents,
                                   num_sessions, options.ramp_s, options.seed));
  return read;
}

Result<void> check_options(const WorkloadOptions& options) {
  if (!(options.rate_scale > 0.0 && std::isfinite(options.rate_scale)))
    return fail(ErrorCode::invalid_argument, "rate_scale", fmt::format("is {}", options.rate_scale), "use a positive number, such as 2");
  if (!(options.ramp_s >= 0.0 && std::isfinite(options.ramp_s)))
    return fail(ErrorCode::invalid_argument, "ramp", fmt::format("is {}", options.ramp_s), "use 0 or more seconds");
  if (!(options.max_think_s >= 0.0))
    return fail(ErrorCode::invalid_argument, "max_think", fmt::format("is {}", options.max_think_s),
                "use 0 or more seconds; 0 keeps the recorded times");
  if (options.num_agents > 10'000'000)
    return fail(ErrorCode::invalid_argument, "agents", fmt::format("is {}", options.num_agents), "use at most 10000000");
  return {};
}

void scale(Workload& workload, double rate_scale) {
  for (WorkloadRequest& request : workload.requests)
    if (request.after == kNoRequest) request.start_s /= rate_scale;
}

Result<Workload> read_journal(const WorkloadOptions& options) {
  auto workload = workload_of_journal(options.path);
  if (!workload) return workload;
  if (options.max_requests != 0 && options.max_requests < workload->requests.size()) workload->requests.resize(options.max_requests);
  order(*workload, false);
  scale(*workload, options.rate_scale);
  return workload;
}

// Adds the prompt tokens from a file that lists the same requests in the same order.
Result<void> add_prompts(Workload& workload, const std::string& path) {
  auto lines = LineReader::open(path);
  if (!lines) return std::unexpected(lines.error());
  Workload prompts;
  const auto format = FileReader(*lines, prompts).read(static_cast<std::uint32_t>(workload.requests.size()));
  if (!format) return std::unexpected(format.error());
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    if (i >= prompts.requests.size() || !prompts.requests[i].has_tokens ||
        prompts.requests[i].prompt_tokens != workload.requests[i].prompt_tokens)
      return fail(ErrorCode::invalid_argument, path, fmt::format("line {} is not the prompt of request {}", i + 1, i),
                  "use the prompt file of that run");
    workload.requests[i].has_tokens = true;
    workload.requests[i].first_token = prompts.requests[i].first_token;
  }
  workload.tokens = std::move(prompts.tokens);
  return {};
}

}  // namespace

Result<Workload> read_workload(const WorkloadOptions& options) {
  if (auto valid = check_options(options); !valid) return std::unexpected(valid.error());
  if (is_journal(options.path)) return read_journal(options);
  auto lines = LineReader::open(options.path);
  if (!lines) return std::unexpected(lines.error());
  Workload workload;
  workload.name = std::filesystem::path(options.path).filename();
  const auto format = FileReader(*lines, workload).read(options.max_requests != 0 ? options.max_requests : kMostRequests);
  if (!format) return std::unexpected(format.error());
  if (workload.requests.empty()) return fail(ErrorCode::invalid_argument, options.path, "contains no requests", "use a file with requests");
  if (!options.prompts.empty())
    if (auto added = add_prompts(workload, options.prompts); !added) return std::unexpected(added.error());
  order(workload, has_sessions(*format));
  if (has_sessions(*format)) workload = assign_to_agents(std::move(workload), options);
  if (*format == WorkloadFormat::mooncake) {
    if (options.spread_bursts) spread(workload.requests);
    workload.notes.push_back(options.spread_bursts ? "requests of equal time are spread evenly up to the next time"
                                                   : "requests of equal time arrive together, as bursts");
    workload.notes.push_back("the ids cover only prompts: prompts do not hit cached blocks of earlier outputs");
  }
  scale(workload, options.rate_scale);
  return workload;
}

}  // namespace quire
