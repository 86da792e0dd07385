#include "cli/bench_url_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>

#include "cli/flags/choice_flag.h"
#include "traffic/traffic_run.h"

namespace quire {
namespace {

using Load = BenchUrlFlags::Workload;

constexpr const char* kGroup = "Load on a server (--url)";
constexpr std::uint32_t kMaxPrompts = 1'000'000;
// Flags of both groups, which quire bench adds.
constexpr std::array<std::string_view, 2> kShared = {"--seed", "--temperature"};

std::unexpected<Error> wrong(const char* flag, const std::string& what, const std::string& remedy) {
  return fail(ErrorCode::invalid_argument, flag, what, remedy);
}

template <class Value>
CLI::Option* add(CLI::App& command, const char* name, Value& value, const char* help, const char* type = "") {
  CLI::Option* const option = command.add_option(name, value, help)->group(kGroup);
  if constexpr (std::is_arithmetic_v<Value>)
    if (value != Value{}) option->capture_default_str();
  return *type == '\0' ? option : option->type_name(type);
}

void add_target_flags(CLI::App& command, BenchUrlFlags& flags) {
  add(command, "--url", flags.url, "Server to measure over HTTP: quire, vLLM, llama.cpp or another server with OpenAI's API", "URL");
  add(command, "--api-key", flags.api_key, "API key of the server")->envname("QUIRE_API_KEY");
  add(command, "--served-model", flags.model, "Model name in the requests (default: the first model that the server lists)", "NAME");
  add(command, "--endpoint", flags.endpoint, "Path of the API: /v1/completions, or /v1/chat/completions with one message per request",
      "PATH")
      ->capture_default_str();
  command
      .add_flag_callback(
          "--ignore-eos", [&flags] { flags.ignore_eos = true; },
          "Generate all output tokens, also after an end token (default, except for sharegpt)")
      ->group(kGroup);
  command
      .add_flag_callback(
          "--no-ignore-eos", [&flags] { flags.ignore_eos = false; }, "Let answers end early; for servers that refuse ignore_eos")
      ->group(kGroup);
  add(command, "--extra-body", flags.extra_body, "Additional fields of each request, as a JSON object", "JSON");
  add(command, "--timeout", flags.timeout_s, "Time in seconds after which a request counts as failed", "S");
}

void add_load_flags(CLI::App& command, BenchUrlFlags& flags) {
  add_choice<Load>(command, "--workload", flags.workload,
                   "random: prompts without a common prefix. prefix: prompts with one of --num-prefixes prefixes. sharegpt: questions of a "
                   "ShareGPT file. trace: lengths, shared prefixes and arrivals of a trace (docs/simulate.md lists the formats). Prompts "
                   "are text, except in a trace with token ids (default random)",
                   {{"random", Load::random},
                    {"prefix", Load::prefix},
                    {"prefix_repetition", Load::prefix},
                    {"sharegpt", Load::sharegpt},
                    {"trace", Load::trace}})
      ->group(kGroup);
  add(command, "--dataset-path", flags.dataset, "File of the workloads sharegpt and trace; a trace may be compressed (.gz)", "FILE");
  add(command, "--num-prompts", flags.num_prompts, "Number of requests");
  add(command, "--input-len", flags.input_len, "random: number of input tokens (default 1024)", "TOKENS");
  add(command, "--output-len", flags.output_len, "random, prefix: number of output tokens (default 128). sharegpt: default as in the file",
      "TOKENS");
  add(command, "--range-ratio", flags.range_ratio,
      "random: lengths are uniform from 1 - RATIO to 1 + RATIO times these numbers (default 0)", "RATIO");
  add(command, "--num-prefixes", flags.prefix.num_prefixes, "prefix: number of different prefixes");
  add(command, "--prefix-len", flags.prefix.prefix, "prefix: number of tokens in a prefix", "TOKENS");
  add(command, "--suffix-len", flags.prefix.suffix, "prefix: number of tokens after the prefix, different in each request", "TOKENS");
  add(command, "--rate-scale", flags.trace.rate_scale, "trace: factor for the arrival rate of the file");
  add(command, "--agents", flags.trace.num_agents, "trace: number of concurrent agents, for a file of sessions (default: one per session)");
  add(command, "--max-think", flags.trace.max_think_s, "trace: maximum think time between turns, in seconds (default: as recorded)", "S");
}

void add_arrival_flags(CLI::App& command, BenchUrlFlags& flags) {
  add(command, "--request-rate", flags.request_rate,
      "Arrivals per second; inf: all requests arrive at the start (default inf; trace: as in the file)", "RATE");
  add(command, "--burstiness", flags.burstiness,
      "Shape of the gamma distribution of the gaps between arrivals. 1: Poisson process; less: bursts; inf: equal gaps");
  add(command, "--max-concurrency", flags.max_concurrency,
      "Maximum number of requests in progress. Further requests wait before they are sent (default: no limit)");
  add(command, "--num-warmups,--warmups", flags.num_warmups,
      "Number of requests before the measurement, with other prompts of the same lengths (default 0)");
}

void add_result_flags(CLI::App& command, BenchUrlFlags& flags) {
  add(command, "--goodput", flags.goodput, "Count requests within these limits, in milliseconds: ttft:500 tpot:50 e2el:5000", "NAME:MS")
      ->expected(1, 3);
  add(command, "--json", flags.json,
      "File to which the results are written as JSON, with the keys of vllm bench serve; -: to stdout, in place of the table", "FILE");
  command.add_flag("--save-detailed", flags.has_details, "Add a value per request to the JSON: lengths, TTFT, gaps, errors")->group(kGroup);
  add(command, "--plot,--html", flags.plot, "File to which the results are drawn, as an HTML page for a browser", "FILE");
}

}  // namespace

void add_bench_url_flags(CLI::App& command, BenchUrlFlags& flags) {
  add_target_flags(command, flags);
  add_load_flags(command, flags);
  add_arrival_flags(command, flags);
  add_result_flags(command, flags);
}

Result<void> check_flag_groups(const CLI::App& command) {
  const bool has_url = command.get_option("--url")->count() > 0;
  for (const CLI::Option* option : command.get_options()) {
    const bool needs_url = option->get_group() == kGroup;
    if (option->count() == 0 || needs_url == has_url || std::ranges::find(kShared, option->get_name()) != kShared.end()) continue;
    if (!option->get_envname().empty()) continue;  // the environment may set the option for other commands
    const std::string name = option->get_positional() ? option->get_type_name() : option->get_name();
    if (has_url)
      return fail(ErrorCode::invalid_argument, name, "has no effect with --url, which measures a running server",
                  fmt::format("remove it; see the group '{}' of quire bench --help", kGroup));
    return fail(ErrorCode::invalid_argument, name, "has no effect without --url", "add --url http://HOST:PORT");
  }
  return {};
}

Result<void> check_bench_url_flags(const BenchUrlFlags& flags) {
  const auto is = [](auto value) { return fmt::format("is {}", value); };
  const std::uint32_t available = available_connections();
  const bool needs_file = flags.workload == Load::sharegpt || flags.workload == Load::trace;
  if (flags.num_prompts == 0 || flags.num_prompts > kMaxPrompts)
    return wrong("--num-prompts", is(flags.num_prompts), fmt::format("use 1 to {}", kMaxPrompts));
  if (flags.num_warmups > kMaxPrompts) return wrong("--num-warmups", is(flags.num_warmups), fmt::format("use 0 to {}", kMaxPrompts));
  if (flags.max_concurrency && (*flags.max_concurrency == 0 || *flags.max_concurrency > available))
    return wrong("--max-concurrency", is(*flags.max_concurrency),
                 fmt::format("use 1 to {}, the number of connections that ulimit -n allows", available));
  if (flags.request_rate && !(*flags.request_rate >= 1e-6))
    return wrong("--request-rate", is(*flags.request_rate), "use at least 0.000001 requests per second, or inf");
  if (!(flags.burstiness >= 1e-3)) return wrong("--burstiness", is(flags.burstiness), "use at least 0.001; 1 is a Poisson process");
  if (!(flags.timeout_s >= 1e-3 && flags.timeout_s <= 1e6)) return wrong("--timeout", is(flags.timeout_s), "use 0.001 to 1000000 seconds");
  if (flags.temperature && !(*flags.temperature >= 0.0 && *flags.temperature <= 100.0))
    return wrong("--temperature", is(*flags.temperature), "use 0 to 100");
  if (needs_file && flags.dataset.empty()) return wrong("--dataset-path", "is missing", "give the file of the workload");
  if (!needs_file && !flags.dataset.empty())
    return wrong("--dataset-path", "has no effect with this workload", "add --workload sharegpt or trace");
  if (!flags.endpoint.ends_with("/completions"))
    return wrong("--endpoint", fmt::format("is '{}'", flags.endpoint), "use /v1/completions or /v1/chat/completions");
  return {};
}

}  // namespace quire
