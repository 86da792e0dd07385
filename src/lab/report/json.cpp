// Writes results as JSON for programs. Times are in seconds. Called by the lab's commands after a run; pure functions. Field names are an
// interface: existing names do not change.
#include <fmt/format.h>

#include <utility>

#include "base/append_format.h"
#include "base/json_text.h"
#include "lab/report/figures.h"

namespace quire {
namespace {

// Builds an object member by member.
class Object {
 public:
  void number(std::string_view name, double value) { raw(name, fmt::format("{:.9g}", value)); }
  void count(std::string_view name, std::uint64_t value) { raw(name, std::to_string(value)); }
  void text(std::string_view name, std::string_view value) { raw(name, json_string(value)); }
  void raw(std::string_view name, std::string_view json) {
    text_ += text_.empty() ? "{" : ", ";
    text_ += json_string(name);
    text_ += ": ";
    text_ += json;
  }
  std::string take() { return text_.empty() ? "{}" : std::exchange(text_, {}) + "}"; }

 private:
  std::string text_;
};

std::string distribution_json(const Distribution& values) {
  Object object;
  object.count("count", values.count);
  for (const auto& [name, value] :
       {std::pair("mean", values.mean), {"p50", values.p50}, {"p90", values.p90}, {"p99", values.p99}, {"max", values.max}})
    object.number(name, value);
  return object.take();
}

std::string options_json(const SimulationOptions& options) {
  Object object;
  object.count("num_instances", options.num_instances);
  object.text("routing", routing_name(options.routing));
  object.count("block_size", options.block_size);
  object.count("num_blocks", options.num_blocks);
  object.count("max_num_seqs", options.scheduler.max_num_seqs);
  object.count("max_num_batched_tokens", options.scheduler.max_num_batched_tokens);
  object.raw("async_scheduling", options.scheduler.async_scheduling ? "true" : "false");
  object.count("kv_dram_bytes", options.tier.bytes);
  object.count("kv_swap_bytes", options.tier.swap_bytes);
  object.number("slo_ttft_s", options.slo_ttft_s);
  object.number("slo_tpot_s", options.slo_tpot_s);
  object.raw("worker", worker_model_json(options.worker));
  return object.take();
}

std::string samples_json(const SimulationResult& result) {
  std::string text;
  for (const LoadSample& sample : result.samples)
    append_format(text, "{}[{:.6g}, {}, {}, {:.4g}]", text.empty() ? "[" : ", ", sample.time_s, sample.num_running, sample.num_waiting,
                  sample.kv_usage);
  return text.empty() ? "[]" : text + "]";
}

// Returns the curve's rows: blocks, bytes, hit rate, and savings per second.
std::string curve_json(const HitRateCurve& curve, const SimulationOptions& options) {
  std::string rows;
  for (const CurveRow& row : curve_rows(curve, curve.all, curve_costs(curve, options))) {
    Object object;
    if (!row.label.empty()) object.text("label", row.label);
    object.count("blocks", row.num_blocks);
    object.count("bytes", row.num_bytes);
    object.number("hit_rate", row.hit_rate);
    object.number("saved_tokens_per_s", row.saved_tokens_per_s);
    if (row.saved_s_per_s) object.number("saved_s_per_s", *row.saved_s_per_s);
    rows += (rows.empty() ? "" : ", ") + object.take();
  }
  Object object;
  object.number("sampling_rate", curve.sampling_rate);
  object.count("num_tracked", curve.num_tracked);
  object.count("memory_bytes", curve.num_bytes);
  object.number("seconds", curve.seconds);
  object.raw("rows", "[" + rows + "]");
  return object.take();
}

Object result_object(const SimulationResult& result) {
  Object object;
  for (const auto& [name, value] : {std::pair("num_finished", result.num_finished),
                                    {"num_refused", result.num_refused},
                                    {"num_stuck", result.num_stuck},
                                    {"prompt_tokens", result.prompt_tokens},
                                    {"output_tokens", result.output_tokens},
                                    {"cached_tokens", result.cached_tokens},
                                    {"computed_tokens", result.computed_tokens},
                                    {"num_steps", result.num_steps},
                                    {"num_preemptions", result.num_preemptions},
                                    {"num_evicted_blocks", result.num_evicted_blocks},
                                    {"loaded_tokens", result.loaded_tokens},
                                    {"loaded_bytes", result.loaded_bytes},
                                    {"stored_bytes", result.stored_bytes},
                                    {"num_swapped_out", result.num_swapped_out}})
    object.count(name, value);
  for (const auto& [name, value] : {std::pair("makespan_s", result.makespan_s),
                                    {"hit_rate", hit_rate(result)},
                                    {"goodput_per_s", result.goodput_per_s},
                                    {"good_share", result.good_share},
                                    {"kv_usage_mean", result.kv_usage_mean},
                                    {"kv_usage_peak", result.kv_usage_peak},
                                    {"busy_share", result.busy_share},
                                    {"held_by_batch_s", result.held_by_batch_s},
                                    {"held_by_budget_s", result.held_by_budget_s},
                                    {"held_by_blocks_s", result.held_by_blocks_s}})
    object.number(name, value);
  for (const auto& [name, values] : {std::pair("ttft_s", &result.ttft_s),
                                     {"tpot_s", &result.tpot_s},
                                     {"end_to_end_s", &result.end_to_end_s},
                                     {"queue_s", &result.queue_s}})
    object.raw(name, distribution_json(*values));
  if (!result.first_refusal.empty()) object.text("first_refusal", result.first_refusal);
  return object;
}

}  // namespace

std::string simulation_json(const SimulationResult& result, const SimulationOptions& options) {
  Object object = result_object(result);
  object.raw("options", options_json(options));
  object.raw("samples", samples_json(result));
  if (result.curve) object.raw("curve", curve_json(*result.curve, options));
  return object.take() + "\n";
}

std::string sweep_json(std::span<const SweepAxis> axes, std::span<const SweepPoint> points, std::span<const SimulationResult> results) {
  std::string text = "[";
  for (std::size_t i = 0; i < points.size() && i < results.size(); ++i) {
    Object at;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) at.text(axes[axis].name, points[i].values[axis]);
    Object object = result_object(results[i]);
    object.raw("at", at.take());
    text += (i == 0 ? "\n" : ",\n") + object.take();
  }
  return text + "\n]\n";
}

}  // namespace quire
