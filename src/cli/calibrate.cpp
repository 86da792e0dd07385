// quire calibrate: a model of the worker for quire simulate, from what a real one did. On the main thread: it reads traces or runs, has the
// lab fit them, and writes the model to a file only when all of it has been found.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/flags/engine_flags.h"
#include "cli/progress_bar.h"
#include "quire/simulation.h"

namespace quire {
namespace {

constexpr const char* kCalibrateFooter = R"(Examples:
  quire serve model.gguf --journal /var/tmp/run     (and some traffic)
  quire calibrate /var/tmp/run/quire-*.qj --output worker.json

  quire calibrate --vllm-run requests.jsonl --prompts prompts.jsonl --kv-blocks 2588 --max-num-seqs 256 --score --output worker.json

The model: host_s + step_s + prefill_token_s * prompt tokens + decode_row_s * rows of one token + context_token_s * tokens that these
read + prefill_pair_s * pairs of a prompt's token and one that it attends to. docs/simulate.md says how it is fitted.)";

struct CalibrateFlags {
  std::string steps, output, worker;
  RunFitOptions run;
  SimulationOptions simulation;
  bool score = false;
};

Result<FitReport> fit(const CalibrateFlags& flags) {
  if (flags.steps.empty() == flags.run.requests.empty())
    return fail(ErrorCode::invalid_argument, "steps", "one of a trace of steps and --vllm-run is wanted", "see quire calibrate --help");
  if (!flags.steps.empty()) return fit_worker_to_steps(flags.steps);
  SimulationProgress bar;
  if (isatty(STDERR_FILENO) != 0) bar = [](double done) { show_progress("Fitting", done); };
  return fit_worker_to_run(flags.run, flags.simulation, bar);
}

Result<void> print_score(const CalibrateFlags& flags, const WorkerModel& worker) {
  SimulationOptions simulation = flags.simulation;
  simulation.worker = worker;
  const auto lines = score_run(flags.run, simulation);
  if (!lines) return std::unexpected(lines.error());
  fmt::print("{:<10} {:>12} {:>12} {:>8}   (s; the requests that were not fitted)\n", "", "measured", "simulated", "error");
  for (const ScoreLine& line : *lines)
    fmt::print("{:<10} {:>12.4f} {:>12.4f} {:>+7.2f}%\n", line.what, line.measured, line.simulated,
               (line.simulated / line.measured - 1.0) * 100.0);
  return {};
}

Result<int> calibrate(CalibrateFlags& flags) {
  if (!flags.worker.empty()) {
    auto worker = read_worker_model(flags.worker);
    if (!worker) return std::unexpected(worker.error());
    flags.simulation.worker = std::move(*worker);
  }
  const auto report = fit(flags);
  if (!report) return std::unexpected(report.error());
  for (const std::string& line : report->lines) fmt::print("{}\n", line);
  const std::string json = worker_model_json(report->worker);
  fmt::print("{}", json);
  if (!flags.output.empty()) {
    std::ofstream out(flags.output);
    out << json;
    out.close();
    if (!out) return fail(ErrorCode::invalid_argument, flags.output, "cannot be written", "give another file");
  }
  if (!flags.score) return 0;
  if (flags.run.requests.empty())
    return fail(ErrorCode::invalid_argument, "score", "needs a run with requests that are not fitted", "give --vllm-run");
  if (auto printed = print_score(flags, report->worker); !printed) return std::unexpected(printed.error());
  return 0;
}

}  // namespace

Command add_calibrate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("calibrate", "Fit a model of the worker, for simulate, to what a real one did");
  auto flags = std::make_shared<CalibrateFlags>();
  command
      ->add_option("steps", flags->steps,
                   "A journal of quire serve --journal, or a trace of steps: PATH.steps.jsonl of quire serve --trace PATH")
      ->type_name("FILE");
  command->add_option("--vllm-run", flags->run.requests, "Instead: what vLLM says of each request (requests.jsonl)")->type_name("FILE");
  command->add_option("--prompts", flags->run.prompts, "Its prompts' token ids, line by line")->type_name("FILE");
  command->add_option("--fit-share", flags->run.fit_share, "Of its requests, by arrival, those that are fitted")->capture_default_str();
  command->add_option("--rounds", flags->run.max_rounds, "Simulations")->capture_default_str();
  command->add_flag("--score", flags->score, "Then predict the others, and compare");
  command->add_option("--worker", flags->worker, "Where the search begins (default: about an H100 with an 8B model)")->type_name("FILE");
  command->add_option("--kv-blocks", flags->simulation.num_blocks, "How the run was set up: blocks of its KV cache");
  command->add_option("--block-size", flags->simulation.block_size, "... tokens per block (default 16)");
  add_scheduler_flags(*command, flags->simulation.scheduler);
  command->add_option("--output", flags->output, "Write the model there")->type_name("FILE");
  command->footer(kCalibrateFooter);
  return {command, [flags]() { return calibrate(*flags); }};
}

}  // namespace quire
