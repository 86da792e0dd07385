#pragma once
// One subcommand of `quire`: how it introduces itself to the command line, and what it does.
#include <CLI/CLI.hpp>
#include <functional>

#include "quire/base/error.h"

namespace quire {

// Returns the exit status, or an error that main() prints as one line.
using CommandBody = std::function<Result<int>()>;

// Each adds its subcommand to `app`; the body runs after parsing, if the subcommand was named. The flags' storage lives as long as the
// body, so every command is one add_ function that owns its options through a shared_ptr captured by the body.
struct Command {
  CLI::App* app;
  CommandBody body;
};

Command add_serve_command(CLI::App& app);
Command add_demo_command(CLI::App& app);
Command add_run_command(CLI::App& app);
Command add_inspect_command(CLI::App& app);
Command add_bench_command(CLI::App& app);
Command add_trace_command(CLI::App& app);
Command add_cache_command(CLI::App& app);
Command add_explain_command(CLI::App& app);
Command add_curve_command(CLI::App& app);
Command add_simulate_command(CLI::App& app);
Command add_calibrate_command(CLI::App& app);
Command add_replay_command(CLI::App& app);

}  // namespace quire
