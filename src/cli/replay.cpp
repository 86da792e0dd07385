// quire replay: replays journals and compares every decision. Runs on the main thread, without a model or a server, and changes no file.
// The exit status states whether all decisions were equal, for use in scripts.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/json_writer.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "quire/base/version.h"
#include "quire/journal.h"

namespace quire {
namespace {

struct ReplayFlags {
  std::vector<std::string> paths;
  bool is_json = false;
  std::optional<SchedulingPolicy> policy;
  std::optional<std::uint32_t> kv_blocks, max_num_seqs, max_num_batched_tokens;

  [[nodiscard]] bool changes() const { return policy || kv_blocks || max_num_seqs || max_num_batched_tokens; }
  void change(CoreConfig& config) const {
    if (policy) config.scheduler.policy = *policy;
    if (kv_blocks) config.kv.num_blocks = *kv_blocks;
    if (max_num_seqs) config.scheduler.max_num_seqs = *max_num_seqs;
    if (max_num_batched_tokens) config.scheduler.max_num_batched_tokens = *max_num_batched_tokens;
  }
};

std::string json_of(const std::string& path, const ReplayReport& r) {
  const std::string out = json_object([&](JsonWriter& json) {
    json.field("journal", path).field("quire_version", r.header.quire_version).field("decision_profile", r.header.decision_profile);
    json.field("identical", !r.difference.has_value()).field("decisions", r.num_calls).field("steps", r.num_steps);
    json.field("requests", r.num_requests).field("forks", r.num_forks).field("tokens", r.num_tokens);
    json.field("preemptions", r.num_preemptions).field("first_step", r.start ? r.start->progress.num_steps : 0);
    json.field("states", r.num_checkpoints).fixed_field("recorded_s", r.recorded_s, 6).fixed_field("replay_s", r.replay_s, 6);
    json.field("end", journal_end_name(r.end)).field("damage", unless_empty(r.damage));
    if (!r.difference) return;
    json.begin_object("difference").field("step", r.difference->step.value).field("call", r.difference->call);
    json.field("what", r.difference->what).field("state", r.difference->state).end_object();
  });
  return out + "\n";
}

// Describes why the journal file ends. Step numbers count from the start of the run.
std::string describe_end(const ReplayReport& r) {
  const std::uint64_t num_steps = r.last.progress.num_steps;
  if (!r.damage.empty()) return fmt::format("valid up to step {}; {}", num_steps, r.damage);
  switch (r.end) {
    case JournalEnd::cut:
      return fmt::format("valid up to step {}; the end is missing: its writer was killed or is still running", num_steps);
    case JournalEnd::stopped:
      return "complete";
    case JournalEnd::budget:
      return fmt::format("ended at step {}: --journal-max-bytes was reached", num_steps);
    case JournalEnd::disk:
      return fmt::format("ended at step {}: the disk was full or failed", num_steps);
    case JournalEnd::too_slow:
      return fmt::format("ended at step {}: the disk was too slow", num_steps);
    case JournalEnd::continued:
      return fmt::format("complete up to step {}, where the next file continues", num_steps);
    case JournalEnd::saved:
      return fmt::format("complete up to step {}, where it was saved", num_steps);
  }
  return {};
}

std::string text_of(const std::string& path, const ReplayReport& r) {
  std::string out = fmt::format("{}: {}\n", path, describe_end(r));
  if (r.start) {
    out += fmt::format("starts at step {} with the state of the core{}\n", r.start->progress.num_steps,
                       r.num_checkpoints > 0 ? fmt::format("; {} states compared", r.num_checkpoints) : "");
  }
  out += fmt::format(
      "{} steps, {} requests, {} forks, {} tokens, {} preemptions; recorded in {:.1f} s, replayed in {:.2f} s ({:.0f} steps/s)\n",
      r.num_steps, r.num_requests, r.num_forks, r.num_tokens, r.num_preemptions, r.recorded_s, r.replay_s,
      r.replay_s > 0.0 ? static_cast<double>(r.num_steps) / r.replay_s : 0.0);
  if (!r.difference) return out + fmt::format("100 % of {} decisions identical\n", r.num_calls);
  out += fmt::format("decision {} is the first that differs, after step {}\n", r.difference->call, r.difference->step.value);
  if (r.header.quire_version != kVersion) out += fmt::format("(recorded by quire {})\n", r.header.quire_version);
  return out + fmt::format("{}\n{}\n", r.difference->what, r.difference->state);
}

void write_run(JsonWriter& json, const char* name, const WhatIfRun& r) {
  json.begin_object(name).field("steps", r.num_steps).field("preemptions", r.num_preemptions).field("refused", r.num_refused);
  json.field("prompt_tokens", r.num_prompt_tokens).field("hit_tokens", r.num_hit_tokens);
  json.fixed_field("mean_ttft_steps", r.mean_ttft_steps, 3).fixed_field("mean_ttft_s", r.mean_ttft_s, 6);
  json.fixed_field("p50_ttft_s", r.p50_ttft_s, 6).fixed_field("p90_ttft_s", r.p90_ttft_s, 6).fixed_field("end_s", r.end_s, 6);
  json.end_object();
}

std::string json_of(const std::string& path, const WhatIf& w) {
  const std::string out = json_object([&](JsonWriter& json) {
    json.field("journal", path).field("requests", w.num_requests);
    write_run(json, "before", w.before);
    write_run(json, "after", w.after);
    json.field("first_difference", w.first_difference ? std::optional(w.first_difference->value) : std::nullopt);
  });
  return out + "\n";
}

std::string text_of(const std::string& path, const WhatIf& w) {
  std::string out =
      fmt::format("{}: {} requests on virtual time; {}\n{:<24}{:>14}{:>14}\n", path, w.num_requests,
                  w.first_difference ? fmt::format("the first difference is in step {}", w.first_difference->value) : "no decision differs",
                  "", "as recorded", "changed");
  const auto row = [&](const char* name, double before, double after, int digits) {
    out += fmt::format("{:<24}{:>14.{}f}{:>14.{}f}\n", name, before, digits, after, digits);
  };
  const auto count = [&](const char* name, std::uint64_t WhatIfRun::* field) {
    row(name, static_cast<double>(w.before.*field), static_cast<double>(w.after.*field), 0);
  };
  count("steps", &WhatIfRun::num_steps);
  count("preemptions", &WhatIfRun::num_preemptions);
  count("requests rejected", &WhatIfRun::num_refused);
  count("prompt tokens looked up", &WhatIfRun::num_prompt_tokens);
  count("prompt tokens cached", &WhatIfRun::num_hit_tokens);
  row("TTFT, mean, steps", w.before.mean_ttft_steps, w.after.mean_ttft_steps, 1);
  row("TTFT, mean, s", w.before.mean_ttft_s, w.after.mean_ttft_s, 4);
  row("TTFT, p50, s", w.before.p50_ttft_s, w.after.p50_ttft_s, 4);
  row("TTFT, p90, s", w.before.p90_ttft_s, w.after.p90_ttft_s, 4);
  row("last output after, s", w.before.end_s, w.after.end_s, 3);
  return out;
}

Result<int> ask_what_if(const ReplayFlags& flags) {
  for (const std::string& path : flags.paths) {
    const Result<WhatIf> answer = what_if(path, [&](CoreConfig& config) { flags.change(config); });
    if (!answer) return std::unexpected(answer.error());
    fmt::print("{}", flags.is_json ? json_of(path, *answer) : text_of(path, *answer));
  }
  return 0;
}

Result<int> replay_all(const ReplayFlags& flags) {
  if (flags.changes()) return ask_what_if(flags);
  bool is_same = true;
  ReplayReport before;  // report of the previous file, which this file may continue
  for (const std::string& path : flags.paths) {
    ReplayOptions options{.before = &before};
    if (isatty(STDERR_FILENO) != 0) options.progress = [](double done) { show_progress("replay", done); };
    Result<ReplayReport> report = replay(path, options);
    if (!report) return std::unexpected(std::move(report.error()));
    is_same = is_same && !report->difference;
    fmt::print("{}", flags.is_json ? json_of(path, *report) : text_of(path, *report));
    before = std::move(*report);
  }
  return is_same ? 0 : 1;
}

}  // namespace

Command add_replay_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("replay", "Replay journals of the scheduler and compare every decision");
  auto flags = std::make_shared<ReplayFlags>();
  command->add_option("journals", flags->paths, "Journals written by quire serve --journal")->required()->type_name("JOURNAL...");
  command->add_flag("--json", flags->is_json, "Print one JSON object per journal, one per line");
  command->add_option("--policy", flags->policy, "Predict the results with this scheduling policy, on virtual time")
      ->transform(CLI::CheckedTransformer(std::map<std::string, SchedulingPolicy>{
          {"fcfs", SchedulingPolicy::fcfs}, {"priority", SchedulingPolicy::priority}, {"continuum", SchedulingPolicy::continuum}}));
  command->add_option("--kv-blocks", flags->kv_blocks, "Predict the results with this number of KV cache blocks, including the null block");
  command->add_option("--max-num-seqs", flags->max_num_seqs, "Predict the results with this maximum number of running requests");
  command->add_option("--max-num-batched-tokens", flags->max_num_batched_tokens,
                      "Predict the results with this maximum number of tokens in one step");
  command->footer(
      "Exit status: 0: all decisions are equal; 1: a decision differs, which is shown; 2: a journal cannot be read.\n\n"
      "Example:\n"
      "  quire serve model.gguf --journal /var/tmp/journals\n"
      "  quire replay /var/tmp/journals/*.qj\n"
      "  quire replay run.qj --kv-blocks 2000 --policy priority   predict the results of other options");
  return {command, [flags]() { return replay_all(*flags); }};
}

}  // namespace quire
