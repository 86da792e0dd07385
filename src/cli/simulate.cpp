// quire simulate: runs a workload in virtual time, on the real core and a model of the worker. Runs on the main thread. Equal arguments
// give equal results, so no code here may depend on the machine's clock.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/usable_cores.h"
#include "cli/command.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/option_flags.h"
#include "cli/progress_bar.h"
#include "cli/result_files.h"
#include "quire/engine_option_table.h"
#include "quire/simulation.h"

namespace quire {
namespace {

constexpr double kLongSweep_s = 20.0;

constexpr const char* kSimulateFooter = R"(Examples:
  quire simulate --rate 8 --requests 2000 --input-tokens 1500 --output-tokens 300
  quire simulate conversation_trace.jsonl.gz --instances 4 --routing prefix --slo-ttft 2 --slo-tpot 0.05 --html run.html
  quire simulate cc_global.jsonl.gz --agents 200 --instances 4 --routing prefix --max-num-batched-tokens 8192
  quire simulate conversation_trace.jsonl.gz --sweep instances=2,4,8 --sweep kv-blocks=500,1000,2000 --json sweep.json
  quire calibrate run.steps.jsonl --output worker.json && quire simulate trace.jsonl --worker worker.json

The first line of a workload determines its format: Mooncake traces, Azure CSV, requests with token ids, agent sessions, or the
requests.jsonl of a vLLM run. Without a workload, requests are generated. docs/simulate.md lists what is modelled and what is not.)";

struct SimulateFlags {
  WorkloadOptions workload;
  GeneratorOptions generator;
  SimulationOptions simulation;
  std::string worker, json, html;
  std::vector<std::string> sweep;
  std::uint32_t num_threads = 0;
};

// Prints the table, or the JSON if --json is "-", and writes the result files.
Result<int> report(const SimulateFlags& flags, std::string_view table, std::string_view json) {
  const bool prints_json = flags.json == "-";
  fmt::print("{}", prints_json ? json : table);
  if (!prints_json)
    if (const auto wrote = write_file("--json", flags.json, json); !wrote) return std::unexpected(wrote.error());
  if (const auto wrote = write_html(flags.html, json); !wrote) return std::unexpected(wrote.error());
  return 0;
}

SimulationProgress progress_bar(std::string what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [what = std::move(what)](double done) { show_progress(what, done); };
}

Result<Workload> workload_of(const SimulateFlags& flags) {
  if (!flags.workload.path.empty()) return read_workload(flags.workload);
  GeneratorOptions generator = flags.generator;
  generator.seed = flags.workload.seed;
  if (flags.workload.max_requests != 0) generator.num_requests = flags.workload.max_requests;
  return generate_workload(generator);
}

void print_workload(const Workload& workload) {
  std::uint64_t prompt = 0, output = 0;
  for (const WorkloadRequest& request : workload.requests) {
    prompt += request.prompt_tokens;
    output += request.output_tokens;
  }
  fmt::print("workload: {}, {} requests, {} prompt tokens, {} output tokens\n", workload.name, workload.requests.size(), prompt, output);
  for (const std::string& note : workload.notes) fmt::print("  {}\n", note);
}

Result<int> simulate_once(const SimulateFlags& flags, const Workload& workload) {
  const SimulationProgress bar = progress_bar("Simulating");
  const auto result = simulate(workload, flags.simulation, bar);
  if (!result) return std::unexpected(result.error());
  if (bar) bar(1.0);
  return report(flags, simulation_table(*result, flags.simulation), simulation_json(*result, flags.simulation));
}

Result<int> simulate_sweep(const SimulateFlags& flags, const Workload& workload) {
  std::vector<SweepAxis> axes;
  for (const std::string& text : flags.sweep) {
    auto axis = parse_sweep_axis(text);
    if (!axis) return std::unexpected(axis.error());
    axes.push_back(std::move(*axis));
  }
  const auto points = sweep_points(flags.simulation, axes);
  if (!points) return std::unexpected(points.error());
  const std::uint32_t threads = flags.num_threads != 0 ? flags.num_threads : usable_cores();
  const auto seconds = estimate_sweep_s(workload, *points);
  if (!seconds) return std::unexpected(seconds.error());
  if (const double wall_s = *seconds / std::min<double>(threads, static_cast<double>(points->size())); wall_s > kLongSweep_s)
    fmt::print(stderr, "{} simulations take about {:.0f} {} on {} threads; press Ctrl-C to stop\n", points->size(),
               wall_s < 600.0 ? wall_s : wall_s / 60.0, wall_s < 600.0 ? "s" : "min", threads);
  const auto results = sweep(workload, *points, threads, progress_bar("Simulating"));
  if (!results) return std::unexpected(results.error());
  return report(flags, sweep_table(axes, *points, *results), sweep_json(axes, *points, *results));
}

Result<int> run_simulate(SimulateFlags& flags) {
  if (!flags.worker.empty()) {
    auto worker = read_worker_model(flags.worker);
    if (!worker) return std::unexpected(worker.error());
    flags.simulation.worker = std::move(*worker);
  }
  const auto workload = workload_of(flags);
  if (!workload) return std::unexpected(workload.error());
  if (flags.json != "-") print_workload(*workload);
  return flags.sweep.empty() ? simulate_once(flags, *workload) : simulate_sweep(flags, *workload);
}

void add_workload_flags(CLI::App& app, SimulateFlags& flags) {
  WorkloadOptions& workload = flags.workload;
  GeneratorOptions& generator = flags.generator;
  app.add_option("workload", workload.path, "Trace file; may be compressed (.gz)")->type_name("FILE");
  app.add_option("--requests", workload.max_requests,
                 "Number of requests: the first of the file, or the generated ones (default: all; generated: 1000)");
  app.add_option("--rate-scale", workload.rate_scale, "Factor for the arrival rate of the file")->capture_default_str();
  app.add_flag("--spread-bursts", workload.spread_bursts,
               "Spread requests with equal times evenly up to the next time (Mooncake traces round times to 3 s)");
  app.add_option("--agents", workload.num_agents, "Number of concurrent agents, for a file of agent sessions (default: one per session)");
  app.add_option("--ramp", workload.ramp_s, "Time in seconds within which the agents start")->capture_default_str();
  app.add_option("--max-think", workload.max_think_s,
                 "Maximum think time between turns, in seconds (default: as recorded, including nights)");
  app.add_option("--prompts", workload.prompts, "File with the token ids of the prompts, for the requests.jsonl of a vLLM run")
      ->type_name("FILE");
  app.add_option("--seed", workload.seed, "Random seed")->capture_default_str();
  app.add_option("--rate", generator.rate_per_s, "Generated requests: arrivals per second (Poisson process); inf: all at the same time")
      ->capture_default_str();
  app.add_option("--input-tokens", generator.input_tokens, "Generated requests: mean length of prompts, in tokens")->capture_default_str();
  app.add_option("--output-tokens", generator.output_tokens, "Generated requests: mean length of outputs, in tokens")
      ->capture_default_str();
  app.add_option("--spread", generator.spread, "Generated requests: standard deviation of lengths divided by their mean")
      ->capture_default_str();
  app.add_option("--shared-prefix", generator.shared_tokens, "Generated requests: length of the shared prefix of each prompt, in tokens")
      ->capture_default_str();
  app.add_option("--prefixes", generator.num_prefixes, "Generated requests: number of different shared prefixes")->capture_default_str();
}

void add_fleet_flags(CLI::App& app, SimulateFlags& flags) {
  SimulationOptions& simulation = flags.simulation;
  app.add_option("--worker", flags.worker, "Worker model written by quire calibrate (default: about an H100 with an 8B model)")
      ->type_name("FILE");
  app.add_option("--kv-blocks", simulation.num_blocks,
                 "Number of blocks in each KV cache, including the null block (default: for 400000 tokens)");
  app.add_option("--block-size", simulation.block_size, "Number of tokens per block (default: as in the workload, else 16)");
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", simulation.enable_prefix_caching,
               "Keep full blocks after use, so that requests with the same prefix reuse them (default on)");
  app.add_option("--kv-slru", simulation.slru_share,
                 "Segmented LRU: evict blocks that a later request reused after all others, up to this share of the KV cache (default 0: "
                 "LRU)")
      ->type_name("SHARE");
  app.add_option("--instances", simulation.num_instances, "Number of engines, each with a separate worker and KV cache")
      ->capture_default_str();
  add_choice<Routing>(app, "--routing", simulation.routing,
                      "How requests are routed to instances. round-robin; prefix: the instance that computed the longest known prefix, "
                      "unless it is much busier than the least busy one; least-loaded: fewest open requests (default round-robin)",
                      {{"round-robin", Routing::round_robin}, {"prefix", Routing::by_prefix}, {"least-loaded", Routing::least_loaded}});
  app.add_option("--slo-ttft", simulation.slo_ttft_s, "Goodput limit: maximum time to first token, in seconds")->type_name("S");
  app.add_option("--slo-tpot", simulation.slo_tpot_s, "Goodput limit: maximum mean time per further output token, in seconds")
      ->type_name("S");
  add_option_flags(app, kSchedulerOptions, simulation.scheduler);
  add_option_flags(app, kContinuumOptions, simulation.continuum);
}

void add_tier_model_flags(CLI::App& app, SimulationOptions& simulation) {
  TierModel& tier = simulation.tier;
  const auto speed = [&](const char* flag, double& bytes_per_s, const char* help) {
    app.add_option_function<std::uint64_t>(
           flag, [&bytes_per_s](std::uint64_t given) { bytes_per_s = static_cast<double>(given); }, help)
        ->transform(bytes_flag());
  };
  app.add_option("--kv-dram", tier.bytes, "Size of a host memory tier of each instance for KV blocks (default 0: no tier)")
      ->transform(bytes_flag());
  app.add_option("--kv-dram-policy", tier.eviction_policy, "Eviction policy of --kv-dram: lru, arc, arc_paper or s3fifo")
      ->capture_default_str();
  app.add_option("--kv-swap", tier.swap_bytes, "Memory of each instance for blocks of preempted requests (default 0: they are recomputed)")
      ->transform(bytes_flag());
  speed("--kv-load-speed", tier.load_bytes_per_s,
        "Load rate of --kv-dram and --kv-swap, in bytes per second; a disk has about 6GB (default 20GB)");
  speed("--kv-store-speed", tier.store_bytes_per_s, "Store rate of --kv-dram and --kv-swap, in bytes per second (default 20GB)");
  app.add_option("--kv-bytes-per-token", simulation.kv_bytes_per_token, "Bytes of keys and values per token, in all layers")
      ->capture_default_str();
}

}  // namespace

Command add_simulate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("simulate", "Simulate a workload with the real scheduler and a model of the worker");
  auto flags = std::make_shared<SimulateFlags>();
  add_workload_flags(*command, *flags);
  add_fleet_flags(*command, *flags);
  add_tier_model_flags(*command, flags->simulation);
  command
      ->add_option(
          "--sweep", flags->sweep,
          fmt::format("NAME=VALUE,VALUE: simulate each value, combined with all values of other sweeps. Names: {}", sweep_axis_names()))
      ->type_name("AXIS")
      ->allow_extra_args(false);
  command->add_flag(
      "--curve", [flags](std::int64_t count) { flags->simulation.curve_max_tracked = count > 0 ? CurveOptions{}.max_tracked : 0; },
      "Predict the prefix hits of other KV cache sizes from this simulation (docs/curve.md)");
  command->add_option("--threads", flags->num_threads, "Number of parallel simulations in a sweep; 0: one per core");
  command->add_option("--json", flags->json, "File to which the results are written as JSON; -: to stdout, in place of the table")
      ->type_name("FILE");
  add_html_flag(*command, flags->html);
  command->footer(kSimulateFooter);
  return {command, [flags]() { return run_simulate(*flags); }};
}

}  // namespace quire
