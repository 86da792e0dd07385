// quire bench: measures the engine on this machine, without HTTP, or a running server (bench_url.h). Each round submits its requests
// together, and a sink measures them. The output is the median of the rounds, for comparisons on one machine. Runs on the main thread; the
// engine has a separate thread.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <unordered_map>

#include "base/format_bytes.h"
#include "cli/bench_url.h"
#include "cli/command.h"
#include "cli/find_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/option_flags.h"
#include "cli/output_queue.h"
#include "cli/start_engine.h"
#include "quire/engine.h"
#include "quire/engine_option_table.h"

namespace quire {

namespace {

constexpr const char* kBenchFooter = R"(Examples:
  quire bench model.gguf --concurrency 1,8,32 --prompt-tokens 512 --output-tokens 64
      the engine in this process: speed by number of concurrent requests
  quire bench --url http://127.0.0.1:8000 --num-prompts 200 --input-len 512 --output-len 64 --max-concurrency 16
      a running server with 16 clients, each of which sends its next request after an answer
  quire bench --url http://gpu-1:8000 --request-rate 4 --num-prompts 500 --goodput ttft:500 tpot:50 --json run.json --plot run.html
      4 arrivals per second; counts the requests whose first token takes at most 500 ms and each further token 50 ms
  quire bench --url http://gpu-1:8000 --workload prefix --num-prefixes 20 --prefix-len 2000 --suffix-len 100
      prompts that share long beginnings, to measure the prefix cache
  quire bench --url http://gpu-1:8000 --workload trace --dataset-path conversation_trace.jsonl.gz --rate-scale 0.5
      the arrivals of a trace, at half its rate

TTFT is the time from sending a request to its first text. TPOT is the mean time per output token after the first. ITL is the time
between two chunks of a stream. E2E is the time from sending to the last chunk. Lengths of text prompts are adapted to the server's
tokenizer with two short requests, and measured with the usage that the server reports. A second run with the same --seed finds its
prompts in the server's prefix cache. Ctrl-C prints the results so far. The exit status is 1 if a request failed.)";

struct BenchFlags {
  EngineOptions engine;
  std::vector<std::uint32_t> concurrency = {1, 2, 4, 8, 16, 32, 64};
  std::uint32_t prompt_tokens = 128;
  std::uint32_t output_tokens = 64;
  std::uint32_t rounds = 3;
  float temperature = 0.0F;
  bool shared_prompt = false;
};

struct Figures {
  double total_tokens_per_s = 0.0;  // output tokens divided by the time of the whole round
  double first_p50_ms = 0.0, first_p99_ms = 0.0;
  double gap_p50_ms = 0.0, gap_p99_ms = 0.0;
};

using Stopwatch = std::chrono::steady_clock;

double milliseconds(Stopwatch::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

class Round {
 public:
  Round(Engine& engine, OutputQueue& queue, const BenchFlags& flags, std::mt19937& random)
      : engine_(engine), queue_(queue), flags_(flags), random_(random) {}

  Result<Figures> run(std::uint32_t concurrency) {
    const Stopwatch::time_point start = Stopwatch::now();
    for (std::uint32_t request = 0; request < concurrency; ++request) {
      const Result<RequestId> id = engine_.submit(make_request(), queue_);
      if (!id.has_value()) return std::unexpected(id.error());
    }
    for (std::uint32_t finished = 0; finished < concurrency;) {
      const std::vector<RequestOutput> outputs = queue_.take();
      const Stopwatch::time_point now = Stopwatch::now();
      for (const RequestOutput& output : outputs) {
        note(output, start, now);
        finished += output.finished ? 1 : 0;
      }
    }
    const double seconds = milliseconds(Stopwatch::now() - start) / 1e3;
    return Figures{static_cast<double>(num_tokens_) / seconds, percentile(first_ms_, 0.5), percentile(first_ms_, 0.99),
                   percentile(gap_ms_, 0.5), percentile(gap_ms_, 0.99)};
  }

 private:
  EngineRequest make_request() {
    EngineRequest request;
    request.sampling.temperature = flags_.temperature;
    request.sampling.seed = random_();
    request.sampling.max_tokens = flags_.output_tokens;
    request.sampling.ignore_eos = true;
    const auto vocabulary = static_cast<TokenId>(engine_.model().vocab_size);
    std::mt19937 shared(1);
    std::mt19937& source = flags_.shared_prompt ? shared : random_;
    std::uniform_int_distribution<TokenId> token(vocabulary / 50, vocabulary - 1);
    for (std::uint32_t index = 0; index < flags_.prompt_tokens; ++index) request.prompt.push_back(token(source));
    return request;
  }

  void note(const RequestOutput& output, Stopwatch::time_point start, Stopwatch::time_point now) {
    if (output.tokens.empty()) return;
    num_tokens_ += output.tokens.size();
    const auto [entry, is_first] = last_.try_emplace(output.id, now);
    (is_first ? first_ms_ : gap_ms_).push_back(milliseconds(now - (is_first ? start : entry->second)));
    entry->second = now;
  }

  Engine& engine_;
  OutputQueue& queue_;
  const BenchFlags& flags_;
  std::mt19937& random_;
  std::unordered_map<RequestId, Stopwatch::time_point> last_;
  std::vector<double> first_ms_, gap_ms_;
  std::uint64_t num_tokens_ = 0;
};

Result<int> bench(const BenchFlags& flags) {
  OutputQueue queue;  // must outlive the engine, which still delivers other requests after a failed submission
  auto engine = start_engine(EngineBuilder(flags.engine));
  if (!engine.has_value()) return std::unexpected(engine.error());
  fmt::print("{}: {} prompt tokens, {} output tokens, medians of {} rounds\n", (*engine)->model().name, flags.prompt_tokens,
             flags.output_tokens, flags.rounds);
  fmt::print("{:>5} {:>11} {:>14} {:>14} {:>13} {:>13}\n", "c", "out tok/s", "first p50 ms", "first p99 ms", "gap p50 ms", "gap p99 ms");
  std::mt19937 random(1);
  for (const std::uint32_t concurrency : flags.concurrency) {
    std::vector<Figures> rounds;
    for (std::uint32_t round = 0; round < flags.rounds; ++round) {
      const Result<Figures> figures = Round(**engine, queue, flags, random).run(concurrency);
      if (!figures.has_value()) return std::unexpected(figures.error());
      rounds.push_back(*figures);
    }
    std::ranges::sort(rounds, {}, &Figures::total_tokens_per_s);
    const Figures& median = rounds[rounds.size() / 2];
    fmt::print("{:5} {:11.1f} {:14.1f} {:14.1f} {:13.2f} {:13.2f}\n", concurrency, median.total_tokens_per_s, median.first_p50_ms,
               median.first_p99_ms, median.gap_p50_ms, median.gap_p99_ms);
  }
  if (const ExpertReads experts = (*engine)->stats().expert_reads; experts.num_used > 0)
    fmt::print("experts: {:.1f} % of {} uses were not in memory, {} read\n",
               100.0 * static_cast<double>(experts.num_read) / static_cast<double>(experts.num_used), experts.num_used,
               format_bytes(experts.bytes_read));
  return 0;
}

}  // namespace

Command add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure the engine on this machine, or any server with OpenAI's API (--url)");
  auto flags = std::make_shared<BenchFlags>();
  auto url_flags = std::make_shared<BenchUrlFlags>();
  add_engine_flags(*command, flags->engine);
  CLI::Option* const model = command->get_option("model")->required(false);
  add_option_flags(*command, kJournalOptions, flags->engine.journal);
  command->add_option("--concurrency", flags->concurrency, "Numbers of concurrent requests, one row of the table each: 1,8,64")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--prompt-tokens", flags->prompt_tokens, "Number of prompt tokens per request")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--output-tokens", flags->output_tokens, "Number of output tokens per request")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--rounds", flags->rounds, "Number of repetitions; the median is shown")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  const CLI::Option* const temperature =
      command
          ->add_option("--temperature", flags->temperature,
                       "Sampling temperature. A model with random weights repeats itself at 0 (default 0: greedy; --url: the server's)")
          ->check(CLI::NonNegativeNumber);
  command->add_flag("--shared-prompt", flags->shared_prompt, "Give all requests the same prompt, to measure the prefix cache");
  add_bench_url_flags(*command, *url_flags);
  command->footer(kBenchFooter);
  return {command, [flags, url_flags, command, model, temperature]() -> Result<int> {
            if (const auto valid = check_flag_groups(*command); !valid) return std::unexpected(valid.error());
            if (command->get_option("--url")->count() > 0) {
              url_flags->seed = flags->engine.seed;
              if (temperature->count() > 0) url_flags->temperature = flags->temperature;
              return bench_url(*url_flags);
            }
            if (model->count() == 0)
              return fail(ErrorCode::invalid_argument, "MODEL", "is missing",
                          "give a model, or --url http://HOST:PORT of a running server");
            if (auto found = find_models(flags->engine); !found) return std::unexpected(std::move(found.error()));
            return bench(*flags);
          }};
}

}  // namespace quire
