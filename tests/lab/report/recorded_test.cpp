// Compares every table, JSON document and figure of simulated runs, and every read or generated workload, with a record. Each line
// of tests/golden/lab_reports.txt is the digest of one text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/lab_support.h"
#include "lab/workload/block_keys.h"

namespace quire {
namespace {

using test::expect_recorded;
using test::TextFile;

void expect_reports(const Workload& workload, const SimulationOptions& options) {
  const auto result = simulate(workload, options);
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  expect_recorded(simulation_json(*result, options));
  expect_recorded(simulation_table(*result, options));
  std::string times;
  for (const RequestTimes& one : result->requests)
    times += fmt::format("{:.9g} {:.9g} {:.9g} {:.9g} {} {} {} {} {}\n", one.arrival_s, one.scheduled_s, one.first_token_s,
                         one.last_token_s, one.prompt_tokens, one.output_tokens, one.cached_tokens, one.instance, one.refused);
  expect_recorded(times);
}

SimulationOptions options_of_tiers(bool async) {
  SimulationOptions options = test::small_options(async);
  options.num_blocks = 40;
  options.kv_bytes_per_token = 1000;
  options.tier.bytes = 16'000 * 300;
  options.tier.swap_bytes = 16'000 * 50;
  options.tier.load_bytes_per_s = 1e6;
  options.tier.store_bytes_per_s = 2e6;
  options.tier.latency_s = 0.01;
  options.slo_ttft_s = 20.0;
  options.slo_tpot_s = 3.0;
  options.curve_max_tracked = 1000;
  return options;
}

TEST(RecordedRuns, OneInstanceMatchesTheRecord) {
  for (const bool async : {false, true}) {
    expect_reports(test::random_workload(1), test::small_options(async));
    SimulationOptions tight = test::small_options(async);
    tight.num_blocks = 14;
    tight.slo_ttft_s = 2.0;
    tight.worker = {.host_s = 0.05,
                    .step_s = 0.02,
                    .prefill_token_s = 2e-3,
                    .decode_row_s = 1e-2,
                    .context_token_s = 1e-4,
                    .prefill_pair_s = 1e-5,
                    .source = "costs of every kind"};
    expect_reports(test::random_workload(2, 60), tight);
  }
}

TEST(RecordedRuns, TiersMatchTheRecord) {
  for (const bool async : {false, true}) expect_reports(test::random_workload(3), options_of_tiers(async));
}

TEST(RecordedRuns, SeveralInstancesMatchTheRecord) {
  for (const Routing routing : {Routing::round_robin, Routing::by_prefix, Routing::least_loaded}) {
    SimulationOptions options = options_of_tiers(true);
    options.num_instances = 3;
    options.routing = routing;
    expect_reports(test::random_workload(4), options);
  }
}

// The prompts are long so that the router knows prefixes of several lengths.
TEST(RecordedRuns, LongPromptsRoutedByPrefixMatchTheRecord) {
  SimulationOptions options = test::small_options(true);
  options.num_instances = 3;
  options.routing = Routing::by_prefix;
  options.scheduler.max_num_batched_tokens = 512;
  for (const std::uint32_t shared : {250U, 511U, 512U, 700U}) {
    const Workload workload = generate_workload({.num_requests = 60,
                                                 .rate_per_s = 0.1,
                                                 .input_tokens = 1500.0,
                                                 .output_tokens = 5.0,
                                                 .spread = 0.3,
                                                 .shared_tokens = shared,
                                                 .num_prefixes = 5,
                                                 .seed = shared})
                                  .value();
    expect_reports(workload, options);
  }
}

// Sweeps every axis, with one thread and with three.
TEST(RecordedRuns, SweepsMatchTheRecord) {
  const Workload workload = test::random_workload(5, 60);
  for (const std::vector<const char*>& texts :
       std::vector<std::vector<const char*>>{{"kv-blocks=20,40,1000", "instances=1,2"},
                                             {"max-num-seqs=2,8", "max-num-batched-tokens=16,64"},
                                             {"kv-dram=0,64K,4M", "kv-swap=0,512KiB"},
                                             {"routing=round-robin,prefix,least-loaded"},
                                             {"scheduling-policy=fcfs,continuum", "block-size=8,16,32"}}) {
    std::vector<SweepAxis> axes;
    for (const char* text : texts) axes.push_back(parse_sweep_axis(text).value());
    SimulationOptions options = options_of_tiers(true);
    options.num_instances = 2;
    const auto points = sweep_points(options, axes);
    ASSERT_TRUE(points.has_value()) << points.error().to_string();
    std::string before;
    for (const std::uint32_t num_threads : {1U, 3U}) {
      const auto results = sweep(workload, *points, num_threads);
      ASSERT_TRUE(results.has_value()) << results.error().to_string();
      const std::string json = sweep_json(axes, *points, *results);
      if (num_threads > 1) {
        EXPECT_EQ(json, before);
        continue;
      }
      before = json;
      expect_recorded(json);
      expect_recorded(sweep_table(axes, *points, *results));
    }
  }
}

std::string text_of(const Workload& workload) {
  std::string text = fmt::format("{} {} {} {}\n", workload.id_tokens, workload.tokens, workload.notes, workload.runs.size());
  for (const IdRun& run : workload.runs) text += fmt::format("{}+{} ", run.first, run.count);
  for (const WorkloadRequest& one : workload.requests)
    text +=
        fmt::format("{:.9g} {} {} {} {} {} {} {} {} {} {} {}\n", one.start_s, one.after, one.session, one.prompt_tokens, one.output_tokens,
                    one.first_run, one.num_runs, one.first_token, one.has_tokens, one.ends_session, one.name_space, one.shared_ids);
  return text;
}

std::string names_of(const Workload& workload, std::uint32_t block_size) {
  const auto names = BlockHasher::create(workload, block_size);
  if (!names) return names.error().to_string();
  std::string text;
  std::vector<BlockHash> found;
  for (const WorkloadRequest& request : workload.requests) {
    found.clear();
    names->of(request, found);
    for (const BlockHash& name : found) text += fmt::format("{:x} ", name.prefix());
    text += '\n';
  }
  return text;
}

TEST(RecordedRuns, GeneratedWorkloadsMatchTheRecord) {
  for (const std::uint32_t shared : {0U, 1U, 16U, 100U})
    for (const double spread : {0.0, 0.5, 2.0}) {
      const Workload workload = generate_workload({.num_requests = 50,
                                                   .rate_per_s = 3.0,
                                                   .input_tokens = 120.0,
                                                   .output_tokens = 20.0,
                                                   .spread = spread,
                                                   .shared_tokens = shared,
                                                   .num_prefixes = 4,
                                                   .seed = 9 + shared})
                                    .value();
      expect_recorded(text_of(workload));
      expect_recorded(names_of(workload, 16));
      expect_recorded(names_of(workload, 48));
    }
}

// The files of all formats have several turns, sub-agents, scopes, tokens and times.
TEST(RecordedRuns, FilesOfEveryFormatMatchTheRecord) {
  std::vector<std::string> files(6);
  for (int i = 0; i < 20; ++i) {
    files[0] += fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": [{}, {}, {}]}}\n",
                            1000 * (i / 3), 1025 + 25 * i, 1 + i % 4, i % 4, i % 4 + 1, i + 100);
    if (i == 0) files[1] = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    files[1] += fmt::format("20{:02}-{:02}-{:02} {:02}:{:02}:{:02}.5,{},{}\n", 23 + i / 8, 1 + (5 * i) % 12, 1 + (7 * i) % 28, (3 * i) % 24,
                            (11 * i) % 60, (13 * i) % 60, 100 + i, 1 + i);
    files[2] += fmt::format(
        "{{\"input_toks\": 4, \"output_toks\": 2, \"arrival_time_ns\": {}, \"input_tok_ids\": [5, 6, {}, {}], \"output_tok_ids\": [1, "
        "2]}}\n",
        500'000'000ULL * static_cast<unsigned>(i), i % 2, i % 5);
    files[3] +=
        fmt::format("{{\"request_id\": \"b-{}\", \"input_toks\": {}, \"output_toks\": {}, \"arrival_time\": {}, \"queued_ts\": 10.5}}\n", i,
                    30 + i, 2 + i, 1787267980.25 + i * 0.75);
    files[4] += fmt::format(
        "{{\"id\": \"s{}\", \"block_size\": 64, \"hash_id_scope\": \"{}\", \"tool_tokens\": {}, \"system_tokens\": 28, \"requests\": ["
        "{{\"t\": 0.0, \"type\": \"n\", \"in\": 200, \"out\": 10, \"hash_runs\": [[1, 2], [{}, 2]], \"think_time\": {}}},"
        "{{\"t\": 9, \"type\": \"subagent\", \"duration_ms\": 4000, \"requests\": [{{\"t\": 0, \"in\": 70, \"out\": 3, \"hash_runs\": "
        "[[50, 2]], "
        "\"think_time\": 0.0}}, {{\"t\": 2, \"in\": 140, \"out\": 3, \"hash_runs\": [[50, 3]], \"think_time\": 1.0}}]}},"
        "{{\"t\": 20.0, \"type\": \"s\", \"in\": 260, \"out\": {}, \"hash_runs\": [[1, 2], [{}, 3]], \"think_time\": 6.5}}]}}\n",
        i, i % 2 == 0 ? "global" : "local", 36 + 64 * (i % 3), 8 + i % 4, i % 3, i % 5, 8 + i % 4);
    files[5] += fmt::format(
        "{{\"session\": \"m{}\", \"requests\": [{{\"msg\": 2, \"t\": {}, \"prompt\": 100, \"out\": 5}}, {{\"msg\": 4, \"t\": {}, "
        "\"prompt\": {}, "
        "\"out\": {}}}], \"messages\": []}}\n",
        i, 10 + i % 7, 30 + i % 5, 150 + i, 5 + i % 2);
  }
  for (const std::string& text : files) {
    const TextFile file(text);
    for (const WorkloadOptions& options : {WorkloadOptions{.path = file.path()},
                                           {.path = file.path(), .max_requests = 7, .rate_scale = 2.0, .spread_bursts = true},
                                           {.path = file.path(), .num_agents = 5, .ramp_s = 20.0, .max_think_s = 2.0, .seed = 4},
                                           {.path = file.path(), .num_agents = 30, .ramp_s = 5.0, .seed = 5}}) {
      const auto workload = read_workload(options);
      expect_recorded(workload ? text_of(*workload) : workload.error().message);
      if (!workload) continue;
      for (const std::uint32_t block_size : {16U, 64U, 128U, 512U}) expect_recorded(names_of(*workload, block_size));
    }
  }
}

}  // namespace
}  // namespace quire
