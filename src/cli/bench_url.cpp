// The command quire bench --url: prepares the requests, checks the server, runs the load and writes the results. Runs on the main thread.
#include "cli/bench_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/result_files.h"
#include "cli/run_control.h"
#include "traffic/arrivals.h"
#include "traffic/check_target.h"
#include "traffic/figures.h"
#include "traffic/prompts.h"
#include "traffic/report.h"
#include "traffic/traffic_run.h"

namespace quire {
namespace {

using Load = BenchUrlFlags::Workload;

Result<TrafficWorkload> make_workload(const BenchUrlFlags& flags) {
  RandomLengths random{.range_ratio = flags.range_ratio};
  random.input = flags.input_len.value_or(random.input);
  random.output = flags.output_len.value_or(random.output);
  PrefixLengths prefix = flags.prefix;
  prefix.output = flags.output_len.value_or(prefix.output);
  WorkloadOptions trace = flags.trace;
  trace.path = flags.dataset;
  trace.max_requests = flags.num_prompts;
  trace.seed = flags.seed;
  switch (flags.workload) {
    case Load::random:
      return random_workload(random, flags.num_prompts, flags.seed);
    case Load::prefix:
      return prefix_workload(prefix, flags.num_prompts, flags.seed);
    case Load::sharegpt:
      return sharegpt_workload(flags.dataset, flags.output_len, flags.num_prompts, flags.seed);
    case Load::trace:
      break;
  }
  return trace_workload(trace);
}

// Returns the arrivals per second; nullopt: as in the trace.
std::optional<double> rate_of(const BenchUrlFlags& flags) {
  return flags.workload == Load::trace ? flags.request_rate : flags.request_rate.value_or(INFINITY);
}

void set_arrivals(const BenchUrlFlags& flags, std::vector<WorkloadRequest>& requests) {
  const std::optional<double> rate = rate_of(flags);
  if (!rate) return;
  const auto times =
      arrival_times(static_cast<std::uint32_t>(requests.size()), {.rate_per_s = *rate, .burstiness = flags.burstiness, .seed = flags.seed});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].start_s = times[i];
    requests[i].after = kNoRequest;
  }
}

Result<BodyOptions> body_options(const BenchUrlFlags& flags) {
  BodyOptions options{.is_chat = flags.is_chat(), .temperature = flags.temperature};
  // The lengths of answers are fixed, except for ShareGPT, whose lengths are only estimates.
  options.ignore_eos = flags.ignore_eos.value_or(flags.workload != Load::sharegpt);
  if (flags.extra_body.empty()) return options;
  boost::system::error_code code;
  const boost::json::value value = boost::json::parse(flags.extra_body, code);
  if (code || !value.is_object())
    return fail(ErrorCode::invalid_argument, "--extra-body", "is not a JSON object", R"(write it as '{"name": value}')");
  options.extra = value.get_object();
  return options;
}

void print_plan(const TrafficSetup& setup, const Workload& workload, std::uint32_t max_in_progress) {
  std::uint64_t input = 0, output = 0;
  for (const WorkloadRequest& request : workload.requests) {
    input += request.prompt_tokens;
    output += request.output_tokens;
  }
  const std::string arrivals = !setup.request_rate               ? "arrivals as in the trace"
                               : std::isinf(*setup.request_rate) ? "all arrive at the start"
                                                                 : fmt::format("{} arrive per second", *setup.request_rate);
  fmt::print("{}{}, model {}\n{}: {} requests, {} input tokens, {} output tokens; {}; at most {} in progress\n", setup.url, setup.path,
             setup.model, setup.workload, workload.requests.size(), input, output, arrivals, max_in_progress);
  for (const std::string& note : workload.notes) fmt::print("  {}\n", note);
  fmt::print("\n");
  std::fflush(stdout);
}

// Prints the results and writes their files.
Result<void> write_results(const BenchUrlFlags& flags, const TrafficSetup& setup, const TrafficResult& result,
                           const TrafficFigures& figures) {
  const bool prints_json = flags.json == "-";
  const std::span<const RequestRecord> records(result.records);
  const std::string json = traffic_json(figures, setup, flags.has_details ? records : records.first(0));
  fmt::print("{}", prints_json ? json : traffic_table(figures, setup));
  if (!prints_json)
    if (auto wrote = write_file("--json", flags.json, json); !wrote) return wrote;
  return write_html(flags.plot, json);
}

}  // namespace

Result<int> bench_url(const BenchUrlFlags& flags) {
  if (const auto valid = check_bench_url_flags(flags); !valid) return std::unexpected(valid.error());
  const auto limits = parse_goodput(flags.goodput);
  if (!limits) return std::unexpected(limits.error());
  auto fields = body_options(flags);
  if (!fields) return std::unexpected(fields.error());
  auto target = Target::create(flags.url, flags.api_key);
  if (!target) return std::unexpected(target.error());
  auto workload = make_workload(flags);
  if (!workload) return std::unexpected(workload.error());
  const std::vector<WorkloadRequest>& requests = workload->workload.requests;
  set_arrivals(flags, workload->workload.requests);

  const auto model = find_served_model(*target, flags.model, flags.timeout_s);
  if (!model) return std::unexpected(model.error());
  fields->model = *model;
  const PromptWriter probes(*workload, *fields, {}, flags.seed);
  const auto probe = [&](std::uint32_t num_words) { return probes.other_body(num_words, num_words, 1); };
  const auto scale = measure_words(*target, flags.endpoint, probe, flags.timeout_s);
  if (!scale) return std::unexpected(scale.error());
  const PromptWriter prompts(*workload, *fields, *scale, flags.seed);

  const auto num_requests = static_cast<std::uint32_t>(requests.size());
  const std::uint32_t most = std::min(available_connections(), num_requests);
  const TrafficOptions options{
      .path = flags.endpoint, .max_concurrency = std::min(flags.max_concurrency.value_or(most), most), .timeout_s = flags.timeout_s};
  const TrafficSetup setup{.url = target->url(),
                           .path = flags.endpoint,
                           .model = *model,
                           .workload = workload->workload.name,
                           .num_prompts = num_requests,
                           .max_concurrency = flags.max_concurrency,
                           .request_rate = rate_of(flags),
                           .burstiness = flags.burstiness,
                           .seed = flags.seed,
                           .limits = *limits};
  if (flags.json != "-") print_plan(setup, workload->workload, options.max_concurrency);

  StopSignals signals;
  TrafficHooks hooks{.body = [&](std::uint32_t i) { return prompts.warmup_body(i); }, .is_stopped = [&] { return signals.has_come(); }};
  const std::vector<WorkloadRequest> warmups(flags.num_warmups);
  run_traffic(*target, warmups, options, hooks);
  RunProgress progress(requests.size());
  hooks.body = [&](std::uint32_t i) { return prompts.body(i); };
  hooks.progress = [&](std::size_t num_ended) { progress.show(num_ended); };
  const TrafficResult result = run_traffic(*target, requests, options, hooks);
  progress.end();
  const TrafficFigures figures = figures_of(result, *limits);
  if (const auto reported = write_results(flags, setup, result, figures); !reported) return std::unexpected(reported.error());
  return figures.num_failed + figures.num_unfinished > 0 ? 1 : 0;
}

}  // namespace quire
