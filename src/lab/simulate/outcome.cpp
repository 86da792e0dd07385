// Computes the result of a simulation from the times of its requests. Called once, after the simulation, on its thread; pure arithmetic.
// Requests that were rejected or never ended are counted, but excluded from times and rates.
#include "lab/simulate/outcome.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace quire {
namespace {

double percentile_of_sorted(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

struct Latencies {
  std::vector<double> ttft, tpot, end_to_end, queue;
};

bool keeps(double value, double limit) {
  return limit <= 0.0 || value <= limit;
}

void add_counts(CurveCounts& to, const CurveCounts& from) {
  to.num_requests += from.num_requests;
  to.query_tokens += from.query_tokens;
  to.found_tokens += from.found_tokens;
  to.external_tokens += from.external_tokens;
  std::ranges::transform(to.hit_tokens, from.hit_tokens, to.hit_tokens.begin(), std::plus());
}

// Adds the counts of one instance's curve to a sum. There are no tenants, because workloads have none.
void add_curve(std::optional<HitRateCurve>& to, const HitRateCurve& from) {
  if (!to.has_value()) {
    to = from;
    to->tenants.clear();
    return;
  }
  add_counts(to->all, from.all);
  to->seconds = std::max(to->seconds, from.seconds);
  to->sampling_rate = std::min(to->sampling_rate, from.sampling_rate);
  to->num_tracked += from.num_tracked;
  to->num_bytes += from.num_bytes;
}

}  // namespace

Distribution distribution_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {.count = values.size(),
          .mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .p50 = percentile_of_sorted(values, 0.5),
          .p90 = percentile_of_sorted(values, 0.9),
          .p99 = percentile_of_sorted(values, 0.99),
          .max = values.back()};
}

void add_instance(SimulationResult& result, const Instance& instance) {
  const CoreCounters counters = instance.counters();
  const InstanceTotals& totals = instance.totals();
  result.loaded_tokens += counters.external_hit_tokens;
  result.loaded_bytes += static_cast<std::uint64_t>(instance.links().loaded_bytes());
  result.stored_bytes += static_cast<std::uint64_t>(instance.links().stored_bytes());
  result.num_swapped_out += counters.num_swapped_out;
  result.num_steps += counters.num_steps;
  result.num_preemptions += counters.num_preemptions;
  result.num_evicted_blocks += counters.num_evicted_blocks;
  result.computed_tokens += counters.num_scheduled_tokens;
  // The next two members are sums in seconds here; summarise() turns them into fractions.
  result.busy_share += totals.busy_s;
  result.kv_usage_mean += totals.kv_usage_s;
  result.kv_usage_peak = std::max(result.kv_usage_peak, totals.kv_usage_peak);
  result.held_by_batch_s += totals.held_by_batch_s;
  result.held_by_budget_s += totals.held_by_budget_s;
  result.held_by_blocks_s += totals.held_by_blocks_s;
  if (instance.curve() != nullptr) add_curve(result.curve, instance.curve()->curve());
}

void summarise(SimulationResult& result, const SimulationOptions& options) {
  Latencies all;
  double first_s = kNever, last_s = 0.0;
  std::uint64_t num_good = 0;
  for (const RequestTimes& times : result.requests) {
    result.num_refused += times.refused ? 1 : 0;
    if (times.refused) continue;
    if (times.last_token_s < 0.0) {
      ++result.num_stuck;
      continue;
    }
    ++result.num_finished;
    result.prompt_tokens += times.prompt_tokens;
    result.output_tokens += times.output_tokens;
    result.cached_tokens += times.cached_tokens;
    first_s = std::min(first_s, times.arrival_s);
    last_s = std::max(last_s, times.last_token_s);
    const double ttft = times.first_token_s - times.arrival_s;
    const double tpot = times.output_tokens > 1 ? (times.last_token_s - times.first_token_s) / (times.output_tokens - 1.0) : 0.0;
    all.ttft.push_back(ttft);
    if (times.output_tokens > 1) all.tpot.push_back(tpot);
    all.end_to_end.push_back(times.last_token_s - times.arrival_s);
    all.queue.push_back(times.scheduled_s - times.arrival_s);
    num_good += keeps(ttft, options.slo_ttft_s) && keeps(tpot, options.slo_tpot_s) ? 1 : 0;
  }
  result.ttft_s = distribution_of(std::move(all.ttft));
  result.tpot_s = distribution_of(std::move(all.tpot));
  result.end_to_end_s = distribution_of(std::move(all.end_to_end));
  result.queue_s = distribution_of(std::move(all.queue));
  if (result.busy_share > 0.0) result.kv_usage_mean /= result.busy_share;
  if (result.num_finished == 0) return;
  result.makespan_s = last_s - first_s;
  result.busy_share /= result.makespan_s * options.num_instances;
  result.goodput_per_s = static_cast<double>(num_good) / result.makespan_s;
  result.good_share = static_cast<double>(num_good) / static_cast<double>(result.requests.size());
}

}  // namespace quire
