// Writes results as JSON for programs. Times are in seconds. Called by the lab's commands after a run; pure functions. Field names are an
// interface, so existing names must not change.
#include <string>
#include <string_view>
#include <utility>

#include "base/json_writer.h"
#include "lab/report/figures.h"

namespace quire {
namespace {

void write_distribution(JsonWriter& json, std::string_view name, const Distribution& values) {
  json.begin_object(name).field("count", values.count);
  for (const auto& [part, value] :
       {std::pair("mean", values.mean), {"p50", values.p50}, {"p90", values.p90}, {"p99", values.p99}, {"max", values.max}})
    json.field(part, value);
  json.end_object();
}

void write_options(JsonWriter& json, const SimulationOptions& options) {
  json.begin_object("options").field("num_instances", options.num_instances).field("routing", routing_name(options.routing));
  json.field("block_size", options.block_size).field("num_blocks", options.num_blocks);
  json.field("max_num_seqs", options.scheduler.max_num_seqs).field("max_num_batched_tokens", options.scheduler.max_num_batched_tokens);
  json.field("async_scheduling", options.scheduler.async_scheduling).field("kv_dram_bytes", options.tier.bytes);
  json.field("kv_swap_bytes", options.tier.swap_bytes).field("slo_ttft_s", options.slo_ttft_s).field("slo_tpot_s", options.slo_tpot_s);
  json.raw_field("worker", worker_model_json(options.worker)).end_object();
}

void write_samples(JsonWriter& json, const SimulationResult& result) {
  json.begin_array("samples");
  for (const LoadSample& sample : result.samples)
    json.begin_array().value(sample.time_s).value(sample.num_running).value(sample.num_waiting).value(sample.kv_usage).end_array();
  json.end_array();
}

// Writes the curve's rows: blocks, bytes, hit rate, and savings per second.
void write_curve(JsonWriter& json, const HitRateCurve& curve, const SimulationOptions& options) {
  json.begin_object("curve").field("sampling_rate", curve.sampling_rate).field("num_tracked", curve.num_tracked);
  json.field("memory_bytes", curve.num_bytes).field("seconds", curve.seconds).begin_array("rows");
  for (const CurveRow& row : curve_rows(curve, curve.all, curve_costs(curve, options))) {
    json.begin_object();
    if (!row.label.empty()) json.field("label", row.label);
    json.field("blocks", row.num_blocks).field("bytes", row.num_bytes).field("hit_rate", row.hit_rate);
    json.field("saved_tokens_per_s", row.saved_tokens_per_s);
    if (row.saved_s_per_s) json.field("saved_s_per_s", *row.saved_s_per_s);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_result(JsonWriter& json, const SimulationResult& result) {
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
    json.field(name, value);
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
    json.field(name, value);
  for (const auto& [name, values] : {std::pair("ttft_s", &result.ttft_s),
                                     {"tpot_s", &result.tpot_s},
                                     {"end_to_end_s", &result.end_to_end_s},
                                     {"queue_s", &result.queue_s}})
    write_distribution(json, name, *values);
  if (!result.first_refusal.empty()) json.field("first_refusal", result.first_refusal);
}

}  // namespace

std::string simulation_json(const SimulationResult& result, const SimulationOptions& options) {
  const std::string out = json_object([&](JsonWriter& json) {
    write_result(json, result);
    write_options(json, options);
    write_samples(json, result);
    if (result.curve) write_curve(json, *result.curve, options);
  });
  return out + "\n";
}

std::string sweep_json(std::span<const SweepAxis> axes, std::span<const SweepPoint> points, std::span<const SimulationResult> results) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (std::size_t i = 0; i < points.size() && i < results.size(); ++i) {
    json.begin_object();
    write_result(json, results[i]);
    json.begin_object("at");
    for (std::size_t axis = 0; axis < axes.size(); ++axis) json.field(axes[axis].name, points[i].values[axis]);
    json.end_object().end_object();
  }
  json.end_array();
  return text + "\n";
}

}  // namespace quire
