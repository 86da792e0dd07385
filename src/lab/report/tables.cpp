// Writes results as text tables. Called by the lab's commands after a run; pure functions. Values are rounded here; the JSON has all
// digits.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/append_format.h"
#include "lab/report/figures.h"

namespace quire {
namespace {

constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024.0 * kMiB;

template <class... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  append_format(out, format, std::forward<Args>(args)...);
}

void add_row(std::string& out, std::string_view name, const Distribution& values, double scale) {
  add(out, "{:<16} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, values.mean * scale, values.p50 * scale, values.p90 * scale,
      values.p99 * scale, values.max * scale);
}

double share(double part, double whole) {
  return whole > 0.0 ? part / whole : 0.0;
}

}  // namespace

std::string routing_name(Routing routing) {
  switch (routing) {
    case Routing::round_robin:
      return "round-robin";
    case Routing::by_prefix:
      return "prefix";
    case Routing::least_loaded:
      return "least-loaded";
  }
  return "";
}

double hit_rate(const SimulationResult& result) {
  return share(static_cast<double>(result.cached_tokens), static_cast<double>(result.prompt_tokens));
}

CurveCosts curve_costs(const HitRateCurve& curve, const SimulationOptions& options) {
  const std::uint64_t block_bytes = options.kv_bytes_per_token * curve.block_size;
  CurveCosts costs{.block_bytes = block_bytes,
                   .prefill_tokens_per_s = options.worker.prefill_token_s > 0.0 ? 1.0 / options.worker.prefill_token_s : 0.0};
  if (options.tier.bytes > 0)
    costs.named.emplace_back("now + tier", std::max<std::uint64_t>(curve.num_blocks, options.tier.bytes / block_bytes));
  return costs;
}

std::string simulation_table(const SimulationResult& result, const SimulationOptions& options) {
  std::string out;
  add(out, "worker: {}\n", options.worker.source);
  add(out, "{:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "", "mean", "p50", "p90", "p99", "max");
  add_row(out, "TTFT ms", result.ttft_s, 1e3);
  add_row(out, "TPOT ms", result.tpot_s, 1e3);
  add_row(out, "end to end ms", result.end_to_end_s, 1e3);
  add_row(out, "queued ms", result.queue_s, 1e3);
  add(out, "\n{:<16} {} finished", "requests", result.num_finished);
  if (result.num_refused > 0) add(out, ", {} rejected ({})", result.num_refused, result.first_refusal);
  if (result.num_stuck > 0) add(out, ", {} never finished", result.num_stuck);
  add(out, "\n{:<16} {:.1f} s; {:.2f} requests/s, {:.0f} prompt tokens/s, {:.0f} output tokens/s\n", "makespan", result.makespan_s,
      share(static_cast<double>(result.num_finished), result.makespan_s),
      share(static_cast<double>(result.prompt_tokens), result.makespan_s),
      share(static_cast<double>(result.output_tokens), result.makespan_s));
  if (options.slo_ttft_s > 0.0 || options.slo_tpot_s > 0.0)
    add(out, "{:<16} {:.2f} requests/s; {:.1f} % meet{}{}\n", "goodput", result.goodput_per_s, result.good_share * 100.0,
        options.slo_ttft_s > 0.0 ? fmt::format(" TTFT <= {:g} s", options.slo_ttft_s) : "",
        options.slo_tpot_s > 0.0 ? fmt::format(" TPOT <= {:g} ms", options.slo_tpot_s * 1e3) : "");
  add(out, "{:<16} {:.2f} % of {} prompt tokens\n", "prefix hits", hit_rate(result) * 100.0, result.prompt_tokens);
  if (options.tier.bytes > 0 || options.tier.swap_bytes > 0)
    add(out, "{:<16} {:.2f} % of the prompt tokens loaded; {:.1f} GiB in, {:.1f} GiB out; {} requests swapped out\n", "tier",
        share(static_cast<double>(result.loaded_tokens), static_cast<double>(result.prompt_tokens)) * 100.0,
        static_cast<double>(result.loaded_bytes) / kGiB, static_cast<double>(result.stored_bytes) / kGiB, result.num_swapped_out);
  add(out, "{:<16} {:.1f} % mean, {:.1f} % peak; {} blocks evicted\n", "KV cache in use", result.kv_usage_mean * 100.0,
      result.kv_usage_peak * 100.0, result.num_evicted_blocks);
  const auto needed = result.prompt_tokens - result.cached_tokens + result.output_tokens - result.num_finished;
  add(out, "{:<16} {}; {:.2f} % of the computed tokens were recomputed\n", "preemptions", result.num_preemptions,
      share(static_cast<double>(result.computed_tokens) - static_cast<double>(needed), static_cast<double>(result.computed_tokens)) *
          100.0);
  add(out, "{:<16} {} of {}, busy {:.1f} %\n", "steps", result.num_steps,
      options.num_instances == 1 ? std::string("one worker") : fmt::format("{} workers", options.num_instances), result.busy_share * 100.0);
  add(out, "{:<16} {:.1f} s for a batch slot, {:.1f} s for the token budget, {:.1f} s for blocks\n", "waited", result.held_by_batch_s,
      result.held_by_budget_s, result.held_by_blocks_s);
  if (result.curve) {
    add(out, "\npredicted for other sizes of the KV cache{}, from a sample of {:.3g} of the blocks ({:.1f} MiB):\n",
        options.num_instances == 1 ? "" : " of each instance", result.curve->sampling_rate,
        static_cast<double>(result.curve->num_bytes) / kMiB);
    add(out, "{}", curve_table(curve_rows(*result.curve, result.curve->all, curve_costs(*result.curve, options))));
  }
  return out;
}

std::string curve_table(std::span<const CurveRow> rows) {
  std::string out;
  add(out, "{:>12} {:>10} {:>8} {:>16} {:>16}\n", "GiB", "blocks", "hits %", "tokens/s saved", "s/s saved");
  for (const CurveRow& row : rows)
    add(out, "{:>12.3f} {:>10} {:>8.2f} {:>16.1f} {:>16}{}{}\n", static_cast<double>(row.num_bytes) / kGiB, row.num_blocks,
        row.hit_rate * 100.0, row.saved_tokens_per_s, row.saved_s_per_s ? fmt::format("{:.4f}", *row.saved_s_per_s) : "?",
        row.label.empty() ? "" : "  ", row.label);
  return out;
}

std::string sweep_table(std::span<const SweepAxis> axes, std::span<const SweepPoint> points, std::span<const SimulationResult> results) {
  std::string out;
  for (const SweepAxis& axis : axes) add(out, "{:>{}} ", axis.name, std::max<std::size_t>(axis.name.size(), 8));
  add(out, "{:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>7} {:>7} {:>6} {:>7} {:>7}\n", "TTFT p50", "p90", "p99 ms", "TPOT p50", "p99 ms",
      "out tok/s", "goodput", "hits %", "KV %", "preempt", "refused");
  for (std::size_t i = 0; i < points.size() && i < results.size(); ++i) {
    const SimulationResult& result = results[i];
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      add(out, "{:>{}} ", points[i].values[axis], std::max<std::size_t>(axes[axis].name.size(), 8));
    add(out, "{:>10.1f} {:>10.1f} {:>10.1f} {:>9.2f} {:>9.2f} {:>9.0f} {:>7.2f} {:>7.2f} {:>6.1f} {:>7} {:>7}\n", result.ttft_s.p50 * 1e3,
        result.ttft_s.p90 * 1e3, result.ttft_s.p99 * 1e3, result.tpot_s.p50 * 1e3, result.tpot_s.p99 * 1e3,
        share(static_cast<double>(result.output_tokens), result.makespan_s), result.goodput_per_s, hit_rate(result) * 100.0,
        result.kv_usage_mean * 100.0, result.num_preemptions, result.num_refused + result.num_stuck);
  }
  return out;
}

}  // namespace quire
