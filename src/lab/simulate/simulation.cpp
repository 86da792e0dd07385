// Runs the loop over all instances and arrivals in order of time. At equal times, arrivals come first, then the instances by number. Runs
// on the caller's thread. No code here may depend on the machine or its clock, because equal arguments must give equal results to the last
// bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "base/check.h"
#include "lab/simulate/core_config.h"
#include "lab/simulate/instance.h"
#include "lab/simulate/load_samples.h"
#include "lab/simulate/outcome.h"
#include "lab/simulate/router.h"

namespace quire {
namespace {

struct Arrival {
  double time_s;
  std::uint32_t request;
  // Orders later arrivals as "less", as std::priority_queue requires.
  friend bool operator<(const Arrival& a, const Arrival& b) { return a.time_s != b.time_s ? a.time_s > b.time_s : a.request > b.request; }
};

class Simulation {
 public:
  Simulation(const Workload& workload, const SimulationOptions& options, BlockHasher hasher, std::vector<SimulatedStep>* steps)
      : run_{.workload = workload, .options = options, .hasher = hasher, .steps = steps},
        router_(options.routing),
        first_follower_(workload.requests.size(), kNoRequest),
        next_follower_(workload.requests.size(), kNoRequest) {}

  Result<void> start(const CoreConfig& config) {
    for (std::uint32_t i = 0; i < run_.options.num_instances; ++i) {
      auto instance = Instance::create(i, config, run_);
      if (!instance) return std::unexpected(instance.error());
      instances_.push_back(std::move(*instance));
    }
    num_open_.resize(instances_.size());
    const auto& requests = run_.workload.requests;
    run_.times.resize(requests.size());
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
      run_.times[i].prompt_tokens = requests[i].prompt_tokens;
      run_.times[i].output_tokens = requests[i].output_tokens;
      if (requests[i].after == kNoRequest)
        open_.push_back({requests[i].start_s, i});
      else
        next_follower_[i] = std::exchange(first_follower_[requests[i].after], i);
    }
    std::ranges::sort(open_, [](const Arrival& a, const Arrival& b) { return b < a; });
    return {};
  }

  void run(const SimulationProgress& progress) {
    const std::size_t num_requests = run_.times.size();
    std::size_t told = 0;
    for (;;) {
      Instance* next = nullptr;
      double turn_s = kNever;
      for (const auto& instance : instances_)
        if (const double due_s = instance->next_turn_s(); due_s < turn_s) std::tie(next, turn_s) = std::pair(instance.get(), due_s);
      if (const double arrival_s = next_arrival_s(); arrival_s <= turn_s) {
        if (arrival_s == kNever) return;
        arrive();
        continue;
      }
      next->turn();
      num_ended_ += run_.ended.size();
      for (const std::uint32_t request : run_.ended) follow(request, turn_s);
      run_.ended.clear();
      if (samples_.due(turn_s)) samples_.add(load(turn_s));
      if (progress && num_ended_ >= told + num_requests / 100 + 1)
        progress(static_cast<double>(told = num_ended_) / static_cast<double>(num_requests));
    }
  }

  SimulationResult finish() {
    SimulationResult result;
    result.samples = samples_.take();
    result.first_refusal = std::move(run_.first_refusal);
    for (const auto& instance : instances_) add_instance(result, *instance);
    result.requests = std::move(run_.times);
    summarise(result, run_.options);
    return result;
  }

 private:
  [[nodiscard]] double next_arrival_s() const {
    const double open_s = next_open_ < open_.size() ? open_[next_open_].time_s : kNever;
    return followers_.empty() ? open_s : std::min(open_s, followers_.top().time_s);
  }

  void arrive() {
    Arrival arrival{kNever, 0};
    if (followers_.empty() || (next_open_ < open_.size() && open_[next_open_].time_s <= followers_.top().time_s)) {
      arrival = open_[next_open_++];
    } else {
      arrival = followers_.top();
      followers_.pop();
    }
    run_.times[arrival.request].arrival_s = arrival.time_s;
    std::ranges::transform(instances_, num_open_.begin(), [](const auto& instance) { return instance->num_open(); });
    if (run_.options.routing == Routing::by_prefix) run_.hasher.of(run_.workload.requests[arrival.request], names_);
    instances_[router_.choose(names_, num_open_)]->give(arrival.request);
  }

  void follow(std::uint32_t ended, double now_s) {
    for (std::uint32_t next = first_follower_[ended]; next != kNoRequest; next = next_follower_[next])
      followers_.push({now_s + run_.workload.requests[next].start_s, next});
  }

  [[nodiscard]] LoadSample load(double now_s) const {
    LoadSample sample{.time_s = now_s};
    for (const auto& instance : instances_) {
      const CoreCounters counters = instance->counters();
      sample.num_running += counters.num_running;
      sample.num_waiting += counters.num_waiting;
      sample.kv_usage += 1.0 - counters.num_free_blocks / static_cast<double>(counters.num_blocks);
    }
    sample.kv_usage /= static_cast<double>(instances_.size());
    return sample;
  }

  SimulationRun run_;
  InstanceRouter router_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<Arrival> open_;  // requests without a predecessor, by time
  std::size_t next_open_ = 0;
  std::priority_queue<Arrival> followers_;
  std::vector<std::uint32_t> first_follower_, next_follower_;  // linked lists of the requests that follow each request
  std::size_t num_ended_ = 0;
  LoadSamples samples_;
  std::vector<std::uint32_t> num_open_;
  std::vector<BlockHash> names_;
};

Result<SimulationResult> play(const Workload& workload, const SimulationOptions& options, const SimulationProgress& progress,
                              std::vector<SimulatedStep>* steps) {
  if (auto valid = check_simulation(workload, options); !valid) return std::unexpected(valid.error());
  const CoreConfig config = simulated_core(workload, options);
  auto hasher = BlockHasher::create(workload, config.block_size);
  if (!hasher) return std::unexpected(hasher.error());
  Simulation simulation(workload, options, *hasher, steps);
  if (auto started = simulation.start(config); !started) return std::unexpected(started.error());
  simulation.run(progress);
  return simulation.finish();
}

}  // namespace

Result<SimulationResult> simulate(const Workload& workload, const SimulationOptions& options, const SimulationProgress& progress) {
  return play(workload, options, progress, nullptr);
}

Result<SimulationResult> simulate_steps(const Workload& workload, const SimulationOptions& options, std::vector<SimulatedStep>& steps) {
  return play(workload, options, {}, &steps);
}

}  // namespace quire
