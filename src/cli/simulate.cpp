// quire simulate: a workload, the shipping core and a model of the worker, in virtual time. On the main thread. Equal arguments give equal
// results, so nothing here may go by the clock of the machine.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "base/usable_cores.h"
#include "cli/command.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"
#include "cli/progress_bar.h"
#include "quire/simulation.h"

namespace quire {
namespace {

constexpr double kLongSweep_s = 20.0;

constexpr const char* kSimulateFooter = R"(Examples:
  quire simulate --rate 8 --requests 2000 --input-tokens 1500 --output-tokens 300
  quire simulate conversation_trace.jsonl.gz --instances 4 --routing prefix --slo-ttft 2 --slo-tpot 0.05 --svg run.svg
  quire simulate cc_global.jsonl.gz --agents 200 --instances 4 --routing prefix --max-num-batched-tokens 8192
  quire simulate conversation_trace.jsonl.gz --sweep instances=2,4,8 --sweep kv-blocks=500,1000,2000 --json sweep.json
  quire calibrate run.steps.jsonl --output worker.json && quire simulate trace.jsonl --worker worker.json

A workload is read by what its first line shows: Mooncake's traces, Azure's CSV, requests with token ids, sessions of agents, the
requests.jsonl of a vLLM run; without one, requests are made up. docs/simulate.md says what is modelled and what is not.)";

struct SimulateFlags {
  WorkloadOptions workload;
  GeneratorOptions generator;
  SimulationOptions simulation;
  std::string worker, json, svg;
  std::vector<std::string> sweep;
  std::uint32_t num_threads = 0;
};

Result<void> write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  if (path == "-") {
    fmt::print("{}", text);
    return {};
  }
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) return fail(ErrorCode::invalid_argument, path, "cannot be written", "give another file");
  return {};
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
  if (flags.json != "-") fmt::print("{}", simulation_table(*result, flags.simulation));
  if (auto wrote = write_text(flags.json, simulation_json(*result, flags.simulation)); !wrote) return std::unexpected(wrote.error());
  if (auto wrote = write_text(flags.svg, simulation_svg(*result, workload.name)); !wrote) return std::unexpected(wrote.error());
  return 0;
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
    fmt::print(stderr, "{} simulations, about {:.0f} {} on {} threads; Ctrl-C ends them\n", points->size(),
               wall_s < 600.0 ? wall_s : wall_s / 60.0, wall_s < 600.0 ? "s" : "min", threads);
  const auto results = sweep(workload, *points, threads, progress_bar("Simulating"));
  if (!results) return std::unexpected(results.error());
  if (flags.json != "-") fmt::print("{}", sweep_table(axes, *points, *results));
  if (auto wrote = write_text(flags.json, sweep_json(axes, *points, *results)); !wrote) return std::unexpected(wrote.error());
  if (auto wrote = write_text(flags.svg, sweep_svg(axes, *points, *results)); !wrote) return std::unexpected(wrote.error());
  return 0;
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
  app.add_option("workload", workload.path, "A trace; .gz too")->type_name("FILE");
  app.add_option("--requests", workload.max_requests, "Only the first so many (made up: so many, default 1000)");
  app.add_option("--rate-scale", workload.rate_scale, "Arrivals so many times as fast as in the file")->capture_default_str();
  app.add_flag("--spread-bursts", workload.spread_bursts,
               "Requests of equal time come evenly up to the next time (Mooncake's are rounded to 3 s)");
  app.add_option("--agents", workload.num_agents, "Of a file of sessions: so many agents at work (default: one for each session)");
  app.add_option("--ramp", workload.ramp_s, "They begin within so many seconds")->capture_default_str();
  app.add_option("--max-think", workload.max_think_s, "Cut longer think times to so many seconds (default: as they were, nights included)");
  app.add_option("--prompts", workload.prompts, "Of a vLLM run's requests.jsonl: the file with its prompts' token ids")->type_name("FILE");
  app.add_option("--seed", workload.seed, "Of all that is drawn")->capture_default_str();
  app.add_option("--rate", generator.rate_per_s, "Made up: requests per second, as a Poisson process; inf: all at once")
      ->capture_default_str();
  app.add_option("--input-tokens", generator.input_tokens, "Made up: mean length of prompts")->capture_default_str();
  app.add_option("--output-tokens", generator.output_tokens, "Made up: mean length of answers")->capture_default_str();
  app.add_option("--spread", generator.spread, "Made up: standard deviation of lengths over their mean")->capture_default_str();
  app.add_option("--shared-prefix", generator.shared_tokens, "Made up: tokens of each prompt that are a common prefix")
      ->capture_default_str();
  app.add_option("--prefixes", generator.num_prefixes, "Made up: so many different ones")->capture_default_str();
}

void add_fleet_flags(CLI::App& app, SimulateFlags& flags) {
  SimulationOptions& simulation = flags.simulation;
  app.add_option("--worker", flags.worker, "Seconds of its steps, as quire calibrate writes them (default: about an H100 with an 8B model)")
      ->type_name("FILE");
  app.add_option("--kv-blocks", simulation.num_blocks, "Blocks of each KV cache, the null block included (default: 400000 tokens)");
  app.add_option("--block-size", simulation.block_size, "Tokens per block (default: as the workload names them, else 16)");
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", simulation.enable_prefix_caching,
               "Keep full blocks after use and find them again (default on)");
  app.add_option("--instances", simulation.num_instances, "Engines, each with a worker and a cache of its own")->capture_default_str();
  add_choice<Routing>(app, "--routing", simulation.routing,
                      "Who gets a request: round-robin; prefix, who computed the longest known prefix, unless much busier than the idlest; "
                      "least-loaded, by open requests (default round-robin)",
                      {{"round-robin", Routing::round_robin}, {"prefix", Routing::by_prefix}, {"least-loaded", Routing::least_loaded}});
  app.add_option("--slo-ttft", simulation.slo_ttft_s, "Goodput counts requests whose first token came within so many seconds")
      ->type_name("S");
  app.add_option("--slo-tpot", simulation.slo_tpot_s, "... and whose later ones took so many seconds each in the mean")->type_name("S");
  add_scheduler_flags(app, simulation.scheduler);
  add_continuum_flags(app, simulation.continuum);
}

void add_tier_model_flags(CLI::App& app, SimulationOptions& simulation) {
  TierModel& tier = simulation.tier;
  const auto speed = [&](const char* flag, double& bytes_per_s, const char* help) {
    app.add_option_function<std::uint64_t>(
           flag, [&bytes_per_s](std::uint64_t given) { bytes_per_s = static_cast<double>(given); }, help)
        ->transform(bytes_flag());
  };
  app.add_option("--kv-dram", tier.bytes, "Memory beside each KV cache for blocks that requests have left (default 0: none)")
      ->transform(bytes_flag());
  app.add_option("--kv-dram-policy", tier.eviction_policy, "Which blocks go when it is full: lru, arc, arc_paper or s3fifo")
      ->capture_default_str();
  app.add_option("--kv-swap", tier.swap_bytes, "... and for blocks of preempted requests (default 0: these are computed again)")
      ->transform(bytes_flag());
  speed("--kv-load-speed", tier.load_bytes_per_s, "Bytes per second from there: 6GB is a disk (default 20GB)");
  speed("--kv-store-speed", tier.store_bytes_per_s, "Bytes per second to there (default 20GB)");
  app.add_option("--kv-bytes-per-token", simulation.kv_bytes_per_token, "Keys and values of a token, in all layers")->capture_default_str();
}

}  // namespace

Command add_simulate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("simulate", "What a workload would get, from the core that serves and a model of the worker");
  auto flags = std::make_shared<SimulateFlags>();
  add_workload_flags(*command, *flags);
  add_fleet_flags(*command, *flags);
  add_tier_model_flags(*command, flags->simulation);
  command
      ->add_option("--sweep", flags->sweep, fmt::format("NAME=VALUE,VALUE: each value, with each of other sweeps: {}", sweep_axis_names()))
      ->type_name("AXIS")
      ->allow_extra_args(false);
  command->add_flag(
      "--curve", [flags](std::int64_t count) { flags->simulation.curve_names = count > 0 ? CurveOptions{}.max_tracked : 0; },
      "Predict the prefix hits of other sizes of the cache, too, from this run alone (docs/curve.md)");
  command->add_option("--threads", flags->num_threads, "Simulations at once in a sweep; 0: one per core");
  command->add_option("--json", flags->json, "Write the figures there, too; -: to stdout, instead of the table")->type_name("FILE");
  command->add_option("--svg", flags->svg, "Draw them, too")->type_name("FILE");
  command->footer(kSimulateFooter);
  return {command, [flags]() { return run_simulate(*flags); }};
}

}  // namespace quire
