// quire trace: shows a recorded run as a table, as a Perfetto trace, or as an HTML page with a chart.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/result_files.h"
#include "cli/trace_run.h"

namespace quire {
namespace {

struct TraceFlags {
  std::string path, html, perfetto;
  std::uint64_t first_step = 0;
  std::size_t max_rows = 1000;
};

Result<int> show(const TraceFlags& flags) {
  std::ifstream in(flags.path + ".steps.jsonl");
  if (!in) {
    return fail(ErrorCode::not_found, "PATH", fmt::format("'{}.steps.jsonl' cannot be read", flags.path),
                "use the PATH of quire serve --trace");
  }
  const Result<TraceRun> run = TraceRun::read(in, flags.first_step, flags.max_rows);
  if (!run) return std::unexpected(run.error());
  fmt::print("{}", trace_table(*run));
  const std::string perfetto = trace_perfetto(*run);
  if (const auto wrote = write_html(flags.html, perfetto); !wrote) return std::unexpected(wrote.error());
  if (const auto wrote = write_file("--perfetto", flags.perfetto, perfetto); !wrote) return std::unexpected(wrote.error());
  return 0;
}

}  // namespace

Command add_trace_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("trace", "Show the recorded steps of the scheduler of a server");
  auto flags = std::make_shared<TraceFlags>();
  command->add_option("path", flags->path, "PATH of quire serve --trace")->required()->type_name("PATH");
  add_html_flag(*command, flags->html);
  command->add_option("--perfetto", flags->perfetto, "File for ui.perfetto.dev or chrome://tracing, with a lane per request")
      ->type_name("FILE");
  command->add_option("--first-step", flags->first_step, "First step to show")->capture_default_str();
  command->add_option("--max-steps", flags->max_rows, "Maximum number of steps to show")->capture_default_str();
  command->footer("Example:\n  quire serve model.gguf --trace /tmp/run\n  quire trace /tmp/run --html run.html --perfetto run.json");
  return {command, [flags]() { return show(*flags); }};
}

}  // namespace quire
