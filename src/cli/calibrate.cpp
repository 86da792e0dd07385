// quire calibrate: fits a worker model for quire simulate to the steps of a real worker. Runs on the main thread. The command reads traces
// or runs, fits the model, and writes it to a file only after the fit is complete.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/flags/option_flags.h"
#include "cli/progress_bar.h"
#include "quire/engine_option_table.h"
#include "quire/simulation.h"

namespace quire {
namespace {

constexpr const char* kCalibrateFooter = R"(Examples:
  quire serve model.gguf --journal /var/tmp/run     (then send some traffic)
  quire calibrate /var/tmp/run/quire-*.qj --output worker.json

  quire calibrate --vllm-run requests.jsonl --prompts prompts.jsonl --kv-blocks 2588 --max-num-seqs 256 --score --output worker.json

Step time in the model: host_s + step_s + prefill_token_s * prompt tokens + decode_row_s * rows of one token + context_token_s * context
tokens of these rows + prefill_pair_s * pairs of a prompt token and a token that it attends to. docs/simulate.md describes the fit.)";

struct CalibrateFlags {
  std::string steps, output, worker;
  RunFitOptions run;
  SimulationOptions simulation;
  bool score = false;
};

Result<FitReport> fit(const CalibrateFlags& flags) {
  if (flags.steps.empty() == flags.run.requests.empty())
    return fail(ErrorCode::invalid_argument, "FILE", "exactly one of FILE and --vllm-run must be given", "see quire calibrate --help");
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
  fmt::print("{:<10} {:>12} {:>12} {:>8}   (seconds, of the requests that were not fitted)\n", "", "measured", "simulated", "error");
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
    if (!out) return fail(ErrorCode::invalid_argument, flags.output, "cannot be written", "use another file");
  }
  if (!flags.score) return 0;
  if (flags.run.requests.empty())
    return fail(ErrorCode::invalid_argument, "--score", "needs requests that the model is not fitted to", "add --vllm-run");
  if (auto printed = print_score(flags, report->worker); !printed) return std::unexpected(printed.error());
  return 0;
}

}  // namespace

Command add_calibrate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("calibrate", "Fit a worker model for quire simulate to measured steps or requests");
  auto flags = std::make_shared<CalibrateFlags>();
  command->add_option("steps", flags->steps, "Journal of quire serve --journal, or PATH.steps.jsonl of quire serve --trace PATH")
      ->type_name("FILE");
  command->add_option("--vllm-run", flags->run.requests, "Request times of a vLLM run (requests.jsonl), in place of FILE")
      ->type_name("FILE");
  command->add_option("--prompts", flags->run.prompts, "File with the token ids of the prompts of --vllm-run, one request per line")
      ->type_name("FILE");
  command->add_option("--fit-share", flags->run.fit_share, "Share of the requests of --vllm-run, by arrival, to which the model is fitted")
      ->capture_default_str();
  command->add_option("--rounds", flags->run.max_rounds, "Maximum number of simulations for the fit")->capture_default_str();
  command->add_flag("--score", flags->score, "Predict the other requests with the fitted model, and compare with their measured times");
  command->add_option("--worker", flags->worker, "Worker model from which the search starts (default: about an H100 with an 8B model)")
      ->type_name("FILE");
  command->add_option("--kv-blocks", flags->simulation.num_blocks, "Number of KV cache blocks in the run");
  command->add_option("--block-size", flags->simulation.block_size, "Number of tokens per block in the run (default 16)");
  add_option_flags(*command, kSchedulerOptions, flags->simulation.scheduler);
  command->add_option("--output", flags->output, "File to which the worker model is written")->type_name("FILE");
  command->footer(kCalibrateFooter);
  return {command, [flags]() { return calibrate(*flags); }};
}

}  // namespace quire
