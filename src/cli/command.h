#pragma once
// One subcommand of `quire`: its entry on the command line, and the function that runs it.
#include <CLI/CLI.hpp>
#include <functional>

#include "quire/base/error.h"

namespace quire {

// Runs a subcommand. Returns the exit status, or an error that main() prints on one line.
using CommandBody = std::function<Result<int>()>;

// The result of an add_ function, which adds a subcommand to `app`. main() runs the body after parsing, if the user named the subcommand.
// The body owns the values of the flags through a shared_ptr that it captures.
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
Command add_pull_command(CLI::App& app);
Command add_list_command(CLI::App& app);
Command add_rm_command(CLI::App& app);
Command add_recommend_command(CLI::App& app);
Command add_explain_command(CLI::App& app);
Command add_curve_command(CLI::App& app);
Command add_simulate_command(CLI::App& app);
Command add_calibrate_command(CLI::App& app);
Command add_replay_command(CLI::App& app);
Command add_doctor_command(CLI::App& app);

}  // namespace quire
