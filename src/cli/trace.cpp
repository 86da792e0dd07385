// quire trace: a recorded run as a table, and as a picture.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/trace_run.h"

namespace quire {
namespace {

struct TraceFlags {
  std::string path, svg, perfetto;
  std::uint64_t first_step = 0;
  std::size_t max_rows = 1000;
};

// Nothing where no file is named.
Result<void> write(const std::string& path, const char* flag, const std::string& text) {
  if (path.empty()) return {};
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) return fail(ErrorCode::invalid_argument, flag, fmt::format("'{}' cannot be written", path), "give another file");
  return {};
}

Result<int> show(const TraceFlags& flags) {
  std::ifstream in(flags.path + ".steps.jsonl");
  if (!in) {
    return fail(ErrorCode::not_found, "PATH", fmt::format("'{}.steps.jsonl' cannot be read", flags.path),
                "give the PATH that quire serve --trace was given");
  }
  const Result<TraceRun> run = TraceRun::read(in, flags.first_step, flags.max_rows);
  if (!run) return std::unexpected(run.error());
  fmt::print("{}", trace_table(*run));
  if (Result<void> drawn = write(flags.svg, "svg", trace_svg(*run)); !drawn) return std::unexpected(drawn.error());
  if (Result<void> told = write(flags.perfetto, "perfetto", trace_perfetto(*run)); !told) return std::unexpected(told.error());
  return 0;
}

}  // namespace

Command add_trace_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("trace", "Show what a server's scheduler did, step by step");
  auto flags = std::make_shared<TraceFlags>();
  command->add_option("path", flags->path, "As quire serve --trace was given it")->required()->type_name("PATH");
  command->add_option("--svg", flags->svg, "Draw it, too: requests as lanes, blocks as a band")->type_name("FILE");
  command->add_option("--perfetto", flags->perfetto, "Write it for ui.perfetto.dev or chrome://tracing, too: a lane per request")
      ->type_name("FILE");
  command->add_option("--first-step", flags->first_step, "Begin there")->capture_default_str();
  command->add_option("--max-steps", flags->max_rows, "Show at most so many")->capture_default_str();
  command->footer("Example:\n  quire serve model.gguf --trace /tmp/run\n  quire trace /tmp/run --svg run.svg --perfetto run.json");
  return {command, [flags]() { return show(*flags); }};
}

}  // namespace quire
