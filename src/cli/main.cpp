// The `quire` command. This file only calls the subcommands; each subcommand has a separate file.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/commit.h"
#include "cli/config_file.h"
#include "cli/flags/flag_names.h"
#include "cli/flags/usage_error.h"
#include "quire/base/version.h"

namespace {

constexpr const char* kFooter = R"(Examples:
  quire serve model.gguf                 the OpenAI API on 127.0.0.1:8000
  quire serve ORG/REPO:Q4_K_M            the same with a model of the Hugging Face hub, which is downloaded if it is missing
  quire pull ORG/REPO:Q4_K_M             only download a model; quire list and quire rm show and remove models
  quire recommend                        public models for the memory of this machine
  quire demo model.gguf                  a server with simulated clients, to watch on its dashboard
  quire run model.gguf "Once upon a"     one answer in the terminal
  quire inspect model.gguf               show the properties of a model, and what fits into memory
  quire bench model.gguf                 measure the speed on this machine
  quire bench --url http://HOST:PORT     measure a running server over HTTP
  quire doctor                           show what this machine and this build offer, and their limits
  quire trace PATH                       show the recorded steps of the scheduler
  quire replay JOURNAL                   replay a recorded run and compare every decision
  quire explain ID                       explain why a request of a running server was slow
  quire curve                            predict the hit rates of a larger KV cache
  quire simulate --rate 8                simulate a workload without a model or a GPU
  quire cache verify DIR                 compare the blocks of a disk tier with their checksums

quire COMMAND --help describes the flags of a command.)";

// Exit status for invalid input (one line on stderr). 0 is success; the meaning of other values depends on the command.
constexpr int kBadInput = 2;

// Returns the version and the commit, as "quire 0.1.0 (0123456789ab)"; without the commit if the build had no git history.
std::string version_line() {
  const std::string_view commit = quire::build_commit();
  return commit.empty() ? fmt::format("quire {}", quire::kVersion) : fmt::format("quire {} ({})", quire::kVersion, commit);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("quire serves large language models and manages their KV cache.", "quire");
  app.set_version_flag("--version", version_line());
  app.footer(kFooter);
  app.require_subcommand(1);
  const std::vector<quire::Command> commands = {
      quire::add_serve_command(app),     quire::add_demo_command(app),  quire::add_run_command(app),     quire::add_inspect_command(app),
      quire::add_bench_command(app),     quire::add_pull_command(app),  quire::add_list_command(app),    quire::add_rm_command(app),
      quire::add_recommend_command(app), quire::add_trace_command(app), quire::add_replay_command(app),  quire::add_simulate_command(app),
      quire::add_calibrate_command(app), quire::add_cache_command(app), quire::add_explain_command(app), quire::add_curve_command(app),
      quire::add_doctor_command(app)};
  const auto arguments = quire::with_config_file({argv + 1, argv + argc});
  if (!arguments.has_value()) {
    fmt::print(stderr, "quire: {}\n", arguments.error().to_string());
    return kBadInput;
  }
  if (arguments->empty()) {
    fmt::print("{}", app.help());
    return 0;
  }
  try {
    app.parse(std::vector<std::string>(arguments->rbegin(), arguments->rend()));  // CLI11 takes the last argument first
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    fmt::print(stderr, "quire: {}\n", quire::usage_error(app, error, *arguments));
    return kBadInput;
  }
  for (const quire::Command& command : commands) {
    if (!command.app->parsed()) continue;
    const quire::Result<int> status = command.body();
    if (status.has_value()) return *status;
    fmt::print(stderr, "quire: {}\n", quire::as_flag(*command.app, status.error()).to_string());
  }
  return kBadInput;
}
