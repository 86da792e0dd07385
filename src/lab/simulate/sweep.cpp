// Runs simulations of one workload with different options. Called by quire simulate. The simulations run concurrently on threads of the
// call and share only constant data. The results are in the order of the points.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "quire/simulation.h"

namespace quire {
namespace {

constexpr std::size_t kMostPoints = 10'000;
constexpr std::uint32_t kSliceRequests = 200;  // number of the workload's first requests that an estimate simulates

struct AxisKind {
  std::string_view name;
  // Sets the option from text. Returns false if the text is not a valid value.
  bool (*set)(SimulationOptions& options, std::string_view text);
};

template <auto Member>
bool set_count(SimulationOptions& options, std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  Member(options) = value;
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

bool set_routing(SimulationOptions& options, std::string_view text) {
  if (text == "round-robin") options.routing = Routing::round_robin;
  if (text == "prefix") options.routing = Routing::by_prefix;
  if (text == "least-loaded") options.routing = Routing::least_loaded;
  return text == "round-robin" || text == "prefix" || text == "least-loaded";
}

bool set_policy(SimulationOptions& options, std::string_view text) {
  if (text == "fcfs") options.scheduler.policy = SchedulingPolicy::fcfs;
  if (text == "continuum") options.scheduler.policy = SchedulingPolicy::continuum;
  return text == "fcfs" || text == "continuum";
}

// Parses a size such as "0", "512M", "8G" or "8GiB"; units are powers of 1024. Returns false if the text is not a size.
bool read_size(std::string_view text, std::uint64_t& bytes) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.ends_with("iB")) unit.remove_suffix(2);
  const std::size_t power = unit.empty() ? 0 : std::string_view("KMGT").find(unit) + 1;
  if (error != std::errc() || unit.size() > 1 || (power == 0 && !unit.empty()) || count > UINT64_MAX >> 41U) return false;
  bytes = count << (10 * power);
  return true;
}

template <std::uint64_t TierModel::* Member>
bool set_size(SimulationOptions& options, std::string_view text) {
  return read_size(text, options.tier.*Member);
}

constexpr AxisKind kAxes[] = {
    {"kv-blocks", &set_count<[](SimulationOptions& o) -> auto& { return o.num_blocks; }>},
    {"block-size", &set_count<[](SimulationOptions& o) -> auto& { return o.block_size; }>},
    {"instances", &set_count<[](SimulationOptions& o) -> auto& { return o.num_instances; }>},
    {"max-num-seqs", &set_count<[](SimulationOptions& o) -> auto& { return o.scheduler.max_num_seqs; }>},
    {"max-num-batched-tokens", &set_count<[](SimulationOptions& o) -> auto& { return o.scheduler.max_num_batched_tokens; }>},
    {"kv-dram", &set_size<&TierModel::bytes>},
    {"kv-swap", &set_size<&TierModel::swap_bytes>},
    {"routing", &set_routing},
    {"scheduling-policy", &set_policy},
};

std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    values.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

const AxisKind* axis_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kAxes, name, &AxisKind::name);
  return found == std::end(kAxes) ? nullptr : found;
}

// Returns the workload's first requests. A request can follow only an earlier request, which is then included, too.
Workload slice_of(const Workload& workload) {
  Workload slice = workload;
  slice.requests.resize(std::min<std::size_t>(slice.requests.size(), kSliceRequests));
  return slice;
}

double tokens_of(const Workload& workload) {
  double tokens = 0.0;
  // A generated token takes about as much simulation time as a hundred prompt tokens.
  for (const WorkloadRequest& request : workload.requests) tokens += request.prompt_tokens + 100.0 * request.output_tokens;
  return tokens;
}

}  // namespace

std::string sweep_axis_names() {
  std::string names;
  for (const AxisKind& kind : kAxes) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

Result<SweepAxis> parse_sweep_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const AxisKind* const kind = axis_kind(name);
  if (equals == std::string_view::npos || kind == nullptr)
    return fail(ErrorCode::invalid_argument, "sweep", fmt::format("'{}' does not name a sweepable option", text.substr(0, 100)),
                fmt::format("write NAME=VALUE,VALUE with one of {}", sweep_axis_names()));
  SweepAxis axis{.name = std::string(name), .values = split_values(text.substr(equals + 1))};
  SimulationOptions unused;
  for (const std::string& value : axis.values)
    if (!kind->set(unused, value))
      return fail(ErrorCode::invalid_argument, "sweep", fmt::format("'{}' is not a valid value of {}", value.substr(0, 100), name),
                  fmt::format("write {}=VALUE,VALUE", name));
  return axis;
}

Result<std::vector<SweepPoint>> sweep_points(const SimulationOptions& base, std::span<const SweepAxis> axes) {
  std::vector<SweepPoint> points{{.values = {}, .options = base}};
  for (const SweepAxis& axis : axes) {
    const AxisKind* const kind = axis_kind(axis.name);
    if (kind == nullptr)
      return fail(ErrorCode::invalid_argument, "sweep", fmt::format("'{}' cannot be swept", axis.name), "use one of " + sweep_axis_names());
    if (axis.values.empty())
      return fail(ErrorCode::invalid_argument, "sweep", fmt::format("'{}' has no values", axis.name),
                  fmt::format("write {}=VALUE,VALUE", axis.name));
    if (points.size() * axis.values.size() > kMostPoints)
      return fail(ErrorCode::invalid_argument, "sweep", fmt::format("has more than {} points", kMostPoints), "use fewer values");
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (const std::string& value : axis.values) {
        SweepPoint& next = longer.emplace_back(point);
        next.values.push_back(value);
        if (!kind->set(next.options, value))
          return fail(ErrorCode::invalid_argument, "sweep", fmt::format("'{}' is not a valid value of {}", value, axis.name),
                      "use another value");
      }
    }
    points = std::move(longer);
  }
  return points;
}

Result<double> estimate_sweep_s(const Workload& workload, std::span<const SweepPoint> points) {
  const Workload slice = slice_of(workload);
  const double scale = tokens_of(workload) / tokens_of(slice);
  // The first and the last point represent all points.
  double seconds = 0.0;
  for (const SweepPoint* point : {&points.front(), &points.back()}) {
    const auto begin = std::chrono::steady_clock::now();
    if (const auto result = simulate(slice, point->options); !result) return std::unexpected(result.error());
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 2.0;
  }
  return seconds * scale * static_cast<double>(points.size());
}

Result<std::vector<SimulationResult>> sweep(const Workload& workload, std::span<const SweepPoint> points, std::uint32_t num_threads,
                                            const SimulationProgress& progress) {
  std::vector<SimulationResult> results(points.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // protects the next three variables
  std::vector<double> done(points.size(), 0.0);
  std::optional<Error> error;
  double told = 0.0;
  const auto tell = [&](std::size_t index, double share) {
    const std::lock_guard lock(mutex);
    done[index] = share;
    double sum = 0.0;
    for (const double each : done) sum += each;
    if (const double all = sum / static_cast<double>(points.size()); progress && (all >= told + 0.01 || all >= 1.0)) progress(told = all);
  };
  const auto work = [&] {
    for (std::size_t i = next++; i < points.size(); i = next++) {
      auto result = simulate(workload, points[i].options, [&](double share) { tell(i, std::min(share, 0.999)); });
      if (!result) {
        const std::lock_guard lock(mutex);
        if (!error) error = result.error();
        return;
      }
      results[i] = std::move(*result);
      // A sweep reports only summaries, so the memory for the times of single requests is freed.
      results[i].requests = {};
      tell(i, 1.0);
    }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t num = std::clamp<std::size_t>(num_threads, 1, points.size());
    for (std::size_t i = 1; i < num; ++i) threads.emplace_back(work);
    work();
  }
  if (error) return std::unexpected(*error);
  return results;
}

}  // namespace quire
